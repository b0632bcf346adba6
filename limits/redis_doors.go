package limits

import (
	"context"
	"crypto/rand"
	"sync"
	"time"
)

// doorCount is how many doors were seen lately. A Redis that was restarted empty counts the doors as they announce
// themselves again; so that nobody takes a share too large meanwhile, the highest of the last few counts holds.
type doorCount struct {
	mu   sync.Mutex
	last [4]int
	next int
}

func (c *doorCount) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[c.next%len(c.last)] = n
	c.next++
}

func (c *doorCount) highest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 1
	for _, seen := range c.last {
		n = max(n, seen)
	}
	return n
}

// Doors is how many doors shared this Redis when it was last seen; at least 1.
func (r *Redis) Doors() int { return r.doors.highest() }

// DoorTTL is how long one Announce holds.
func (r *Redis) DoorTTL() time.Duration { return r.cfg.DoorTTL }

// Announce says that this door is there, and sees how many are, and whose memory Redis has. As it runs a script that writes,
// it tells also whether Redis is fit to be asked.
func (r *Redis) Announce(ctx context.Context, now time.Time) error {
	within, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	got, err := r.scripts.announce.Run(within, r.client, []string{r.prefix + "doors", r.prefix + "memory"},
		appendNumbers(nil, r.time(now)), r.cfg.Door, r.cfg.DoorTTL.Milliseconds(), rand.Text()).Slice()
	if err != nil {
		return r.failed(ctx, "announce", err)
	}
	if len(got) != 2 {
		return errReply
	}
	doors, isNumber := got[0].(int64)
	memory, isName := got[1].(string)
	if !isNumber || !isName {
		return errReply
	}
	r.doors.add(int(doors))
	r.memory.Store(&memory)
	return nil
}

// Memory implements Primary. The name is in Redis, made up by the first door that announced itself there.
func (r *Redis) Memory() string {
	if name := r.memory.Load(); name != nil {
		return *name
	}
	return ""
}

// withdraw takes this door out, so that the others need not wait for its time to run out.
func (r *Redis) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return r.client.ZRem(ctx, r.prefix+"doors", r.cfg.Door).Err()
}
