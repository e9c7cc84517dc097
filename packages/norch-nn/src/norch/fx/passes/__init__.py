"""What goes over whole graphs."""
