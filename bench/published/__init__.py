"""What bench/planner_accuracy knows of published runs: their rows, devices and systems, and how each is modelled."""
