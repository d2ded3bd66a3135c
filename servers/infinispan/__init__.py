"""An Infinispan server of one node."""
