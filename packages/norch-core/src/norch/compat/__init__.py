"""Names of PyTorch that norch has for the sake of scripts. Each file is loaded when one of its names is first used;
`norch.__init__` says which those are."""
