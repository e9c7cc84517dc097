"""What norch shows of itself: how a tensor lies in memory, what a model consists of, how a result was computed."""
