"""A program in the form that XNNPACK executes, and its arithmetic: what engines that hand their ops to it share."""
