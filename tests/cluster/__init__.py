"""Several hosts on one machine: see network.py."""
