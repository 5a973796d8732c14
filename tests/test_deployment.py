"""The files that deploy the classifier: each is valid, and they agree."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from fakes import serve_status
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

pytestmark = pytest.mark.tensorflow

SERVING = Path(__file__).parents[1] / "examples" / "serving"
STATUS = "/v1/models/text_classification"
MODELS = "/models/text_classification"
CONFIG = ("models.config", "batching.config")


def read(name):
    return (SERVING / name).read_text("utf-8")


@pytest.fixture(scope="module")
def service():
    [service] = yaml.safe_load(read("compose.yaml"))["services"].values()
    return service


@pytest.fixture(scope="module")
def kinds():
    resources = list(yaml.safe_load_all(read("kubernetes.yaml")))
    kinds = {resource["kind"]: resource for resource in resources}
    assert len(kinds) == len(resources) == 3
    return kinds


@pytest.fixture(scope="module")
def pod(kinds):
    return kinds["Deployment"]["spec"]["template"]["spec"]


def batching_parameters():
    """A BatchingParameters, of which no package has the class.

    Fields 1 to 7 of TF Serving's servables/tensorflow/session_bundle_config.proto.
    """
    fields = {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="session_bundle_config.proto",
        package="tensorflow.serving",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
        syntax="proto3",
    )
    message = file.message_type.add(name="BatchingParameters")
    for number, (name, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=name, number=number)
        field.label = field.LABEL_OPTIONAL
        if kind == "repeated int64":
            field.label, field.type = field.LABEL_REPEATED, field.TYPE_INT64
        elif kind == "bool":
            field.type = field.TYPE_BOOL
        else:
            field.type, field.type_name = field.TYPE_MESSAGE, kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters")
    return message_factory.GetMessageClass(found)()


def test_models_config_is_a_model_server_config():
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    parsed = text_format.Parse(read("models.config"), ModelServerConfig())
    [model] = parsed.model_config_list.config
    assert (model.name, model.base_path) == ("text_classification", MODELS)
    assert model.model_platform == "tensorflow"
    assert model.model_version_policy.latest.num_versions == 1
    # A label of a version that is not loaded yet keeps the server from starting.
    assert not model.version_labels


def test_batching_config_is_batching_parameters(pod, monkeypatch):
    monkeypatch.syspath_prepend(SERVING)
    import client

    parameters = text_format.Parse(read("batching.config"), batching_parameters())
    # What the client sends at once has to go into one batch.
    client_sends = client.make_parser().parse_args([]).batch_size
    assert parameters.max_batch_size.value >= client_sends == 64
    assert 0 < parameters.batch_timeout_micros.value <= 10_000
    assert parameters.max_enqueued_batches.value >= parameters.num_batch_threads.value
    assert not parameters.pad_variable_length_inputs
    assert not parameters.allowed_batch_sizes
    [container] = pod["containers"]
    cores = int(container["resources"]["requests"]["cpu"])
    assert parameters.num_batch_threads.value == cores


@pytest.mark.parametrize("text", ["max_batch { value: 1 }", "max_batch_size: 64"])
def test_other_batching_parameters_are_refused(text):
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, batching_parameters())


def test_compose_listens_on_this_machine_only(service):
    assert service["ports"] == [
        "127.0.0.1:${GRPC_PORT:-8500}:8500",
        "127.0.0.1:${REST_PORT:-8501}:8501",
    ]


def test_compose_mounts_what_is_there_and_reads_it_only(service):
    sources = {}
    for volume in service["volumes"]:
        sources[volume.pop("target")] = volume.pop("source")
        assert volume == {
            "type": "bind",
            "read_only": True,
            "bind": {"create_host_path": False},
        }
    assert sources.pop(MODELS) == "../../saved_models/text_classification"
    assert sources == {f"/config/{name}": name for name in CONFIG}
    assert all((SERVING / name).is_file() for name in CONFIG)


def test_image_is_one_version_of_the_official_one(service, pod):
    [container] = pod["containers"]
    assert re.fullmatch(r"tensorflow/serving:\d+\.\d+\.\d+", service["image"])
    assert container["image"] == service["image"]
    documents = (SERVING.parents[1] / "docs" / "serving.md").read_text("utf-8")
    assert set(re.findall(r"tensorflow/serving:\S+", documents)) == {service["image"]}


def test_flags_are_the_same_and_name_mounted_files(service, pod):
    [container] = pod["containers"]
    assert container["args"] == service["command"]
    assert service["command"] == [
        "--model_config_file=/config/models.config",
        "--enable_batching=true",
        "--batching_parameters_file=/config/batching.config",
    ]


def test_config_map_has_the_text_of_the_files(kinds, pod):
    assert kinds["ConfigMap"]["data"] == {name: read(name) for name in CONFIG}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    [container] = pod["containers"]
    paths = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert set(paths) == {"/config", MODELS, "/tmp"}
    config, models = (volumes[paths[path]["name"]] for path in ("/config", MODELS))
    assert config["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    assert models["persistentVolumeClaim"]["readOnly"]
    assert paths[MODELS]["readOnly"] and paths["/config"]["readOnly"]


def test_deployment_is_never_without_a_ready_pod(kinds, pod):
    spec = kinds["Deployment"]["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    [container] = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": STATUS, "port": "rest"}
    [sleep, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert 0 < int(seconds) < pod["terminationGracePeriodSeconds"]
    # The server tries a failed load again, six times in all and a minute apart.
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300


def test_pod_has_no_rights_that_it_does_not_need(pod):
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


def test_service_finds_the_pods_and_their_ports(kinds, pod):
    deployment, service = kinds["Deployment"]["spec"], kinds["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == labels
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports


@pytest.mark.parametrize(
    ("states", "healthy"),
    [(["AVAILABLE"], True), (["END", "AVAILABLE"], True), (["LOADING"], False)],
)
def test_health_check_asks_for_an_available_version(service, states, healthy):
    [kind, *command] = service["healthcheck"]["test"]
    assert kind == "CMD"
    with serve_status(lambda path: states if path == STATUS else None) as address:
        port = address.rpartition(":")[2]
        command[-1] = command[-1].replace("/8501", f"/{port}")
        done = subprocess.run(command, capture_output=True, timeout=10)
        assert (done.returncode == 0) == healthy
    # Nobody listens any more.
    assert subprocess.run(command, capture_output=True, timeout=10).returncode


def test_serve_runs_all_that_compose_says(service, monkeypatch):
    monkeypatch.syspath_prepend(SERVING)
    import container
    import serve

    # Of these, ports become free ones; the others make no difference to one run.
    assert set(service) == {
        *("image", "init", "command", "ports", "volumes", "healthcheck", "restart")
    }
    mounts = serve.mounts(serve.read_service(), Path("/a, b"))
    config = [
        word
        for name in CONFIG
        for word in (
            "--mount",
            f'type=bind,"source={SERVING / name}",target=/config/{name},readonly',
        )
    ]
    assert container.run_arguments(service, mounts, "NAME") == [
        *("run", "--detach", "--name", "NAME", "--init"),
        *("--publish", "127.0.0.1::8500", "--publish", "127.0.0.1::8501"),
        *("--mount", f'type=bind,"source=/a, b",target={MODELS},readonly'),
        *config,
        service["image"],
        *service["command"],
    ]
