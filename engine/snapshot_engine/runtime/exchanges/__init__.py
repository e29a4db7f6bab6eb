"""What cut edges keep, in slots and in the driver. The rules are in `protocol`; here are bytes, files and sockets."""
