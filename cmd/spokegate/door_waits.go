package main

import (
	"cmp"
	"net"
	"time"
)

// startsQuietly is how long a door may be without a policy before it says so: most have one at once.
const startsQuietly = time.Second

// tellWaiting answers for a door that waits for its first policy, from a hub that is away for example: it lives, and is not ready, and
// says why. done ends that, before the door itself answers at the same address.
func (d *door) tellWaiting() (done func()) {
	ops := newOps(d.registry, func() (r report) {
		why := d.agent.Status().LastNack
		if d.hub != nil && why == "" {
			why = "hub " + d.hubFlags.address + ": " + cmp.Or(d.hub.Status().Err, "it has sent none so far")
		}
		r.say(false, "policy: there is none, and never was one here; %s", cmp.Or(why, "nothing has been offered"))
		return r
	}, d.aboutPage())
	ended := make(chan struct{})
	begin := time.AfterFunc(startsQuietly, func() {
		defer close(ended)
		d.log.Warn("the door waits for its first policy", "hub", d.hubFlags.address, "file", d.doorFlags.policy)
		if lis, err := net.Listen("tcp", d.ops); err == nil { // else the door itself will say what is wrong
			_ = ops.Serve(lis)
		}
	})
	return func() {
		stopped := begin.Stop()
		_ = ops.Close() // a Serve that comes later ends at once
		if !stopped {
			<-ended
		}
	}
}
