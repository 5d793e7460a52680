"""Memory of tiles and views: locations, live ranges, capacity, windows."""
