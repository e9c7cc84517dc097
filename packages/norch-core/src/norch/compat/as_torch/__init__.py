"""The folder that `norch run --as-torch` puts before PYTHONPATH: the processes that a program starts read its
`sitecustomize.py`."""
