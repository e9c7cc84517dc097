"""Names of PyTorch that norch has for the sake of scripts. Each file is loaded when one of its names is first used; which
they are says `norch.__init__`."""
