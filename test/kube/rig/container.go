package rig

import "errors"

// becomeContainer is what a container's process does before it is the container.
func becomeContainer() error { return errors.New("not yet") }
