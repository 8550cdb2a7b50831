"""A table of requests that the embedded API server and a real kube-apiserver must answer alike.

`answers.json` has the real server's answers. `make test` compares the embedded server with it; `make kube-table
KUBE_ASSETS=DIR` asks the real one again, compares, and with `RECORD=1` writes the file.
"""
