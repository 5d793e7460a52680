"""Where tiles and windows of memory are: locations, bytes, room."""
