"""Records: how versions merge, how arcs of them move, where they are stored."""
