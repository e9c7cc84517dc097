"""Finding plug-ins: the entry points of installed distributions, and the hooks that their modules answer."""
