# Everything runs in .venv, made here on first use; nothing is written outside.
PYTHON ?= python3
VENV := .venv/bin/python
export TMPDIR := $(CURDIR)/.venv/tmp
export KERAS_HOME := $(CURDIR)/.venv/keras
# onnxruntime's, among others.
export XDG_CACHE_HOME := $(CURDIR)/.venv/cache
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: example serve test lint docs benchmark benchmark-quick numbers study \
	study-quick clean

example: .venv/installed
	$(VENV) examples/text_classification.py
	$(VENV) examples/text_classification.py --predict '质量很好，非常满意' '太差了，再也不买了'

# The newest export in the official TensorFlow Serving image, by REST and by gRPC.
serve: .venv/installed
	$(VENV) examples/serving/serve.py

test: .venv/installed
	$(VENV) -m pytest -n 2 --dist worksteal

lint: .venv/installed
	$(VENV) -m ruff check . .ci/cpp_libraries
	$(VENV) -m ruff format --check . .ci/cpp_libraries

# docs/ as a site, from site/index.html on. A link that leads nowhere is an error, and
# all is made anew, since a page that is kept would not be looked at again.
docs: .venv/docs
	rm -rf site
	$(VENV) -m sphinx --quiet --fresh-env --fail-on-warning --keep-going \
		-c docs -d .venv/doctrees -b html . site
	echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' > site/index.html

# The layer beside its peers: about 25 minutes on two cores, and the documents anew.
benchmark: .venv/benchmark
	$(VENV) -m benchmarks.performance
	$(VENV) -m benchmarks.documents

# A small part of that, printed: about 2 minutes on two cores.
benchmark-quick: .venv/benchmark
	$(VENV) -m benchmarks.performance --quick

# The other measurements, and the documents anew.
numbers: .venv/benchmark
	$(VENV) -m benchmarks.promises
	$(VENV) -m benchmarks.ways
	$(VENV) -m benchmarks.family
	$(VENV) -m benchmarks.attention
	$(VENV) -m benchmarks.device_check
	$(VENV) -m benchmarks.profile
	$(VENV) -m benchmarks.example
	$(VENV) -m benchmarks.serving
	$(VENV) -m benchmarks.documents

# What each encoding is worth, trained, and the documents anew: about an hour on two
# cores, in one go or several.
study: .venv/installed
	$(VENV) -m benchmarks.study
	$(VENV) -m benchmarks.documents

# That all of it runs, in about six minutes. Its numbers mean nothing.
study-quick: .venv/installed
	$(VENV) -m benchmarks.study --quick

.venv/benchmark: .venv/installed
	$(VENV) -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		--editable '.[benchmark]'
	touch $@

.venv/docs: .venv/installed
	$(VENV) -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		--editable '.[docs]'
	touch $@

.venv/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	mkdir -p $(TMPDIR)
	$(VENV) -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		--editable '.[test]'
	touch $@

clean:
	rm -rf .venv .venv-* build dist site *.egg-info
