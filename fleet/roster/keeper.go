package roster

import (
	"context"
	"fmt"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// Keeper keeps the workers of one list in a fleet. Not safe for concurrent use.
type Keeper struct {
	Fleet *fleet.Fleet
	// Open begins to announce the KV blocks of a worker that has events, before it joins, and says where pickers follow them;
	// close ends that, when it has left. nil: no events are followed.
	Open func(Worker) (blocksAddr string, close func(), err error)
	// Watch looks after those workers of the list that are in the fleet and not held, and after no other from when it returns; it is
	// told at each change, and at the end that there are none. Watch of a scrape.Scraper.
	Watch func(context.Context, []scrape.Target)

	members map[string]*member // by name
}

type member struct {
	Worker
	leave func()
}

// Len is how many workers of the list are in the fleet.
func (k *Keeper) Len() int { return len(k.members) }

// Apply makes these the workers of the list in the fleet. Nobody looks after one that leaves when it does, so that nothing is said
// of another who takes its name. It tells why workers cannot join, if any; whoever called it may try again.
func (k *Keeper) Apply(ctx context.Context, list []Worker) (problems []string) {
	want := map[string]Worker{}
	for _, w := range list {
		want[w.Worker.Name] = w
	}
	var gone []*member
	watch := false
	for name, m := range k.members {
		w, stays := want[name]
		if stays = stays && w.same(m.Worker); !stays {
			gone = append(gone, m)
			delete(k.members, name)
		}
		watch = watch || !stays || (w.Held != 0) != (m.Held != 0)
	}
	k.hold(ctx, want, watch)
	for _, m := range gone {
		m.leave()
	}
	joined := false
	for _, w := range list {
		if k.members[w.Worker.Name] != nil {
			continue
		}
		leave, err := k.join(w)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		if k.members == nil {
			k.members = map[string]*member{}
		}
		k.members[w.Worker.Name] = &member{w, leave}
		k.tell(w)
		joined = joined || w.Held == 0
	}
	if joined {
		k.Watch(ctx, k.present())
	}
	return problems
}

// hold puts those that stay into the states that the list says, once nobody says another.
func (k *Keeper) hold(ctx context.Context, want map[string]Worker, watch bool) {
	var changed, freed []Worker
	for name, m := range k.members {
		w := want[name]
		switch {
		case w.Held == m.Held && w.Why == m.Why:
			continue
		case w.Held == 0:
			freed = append(freed, w)
		default:
			changed = append(changed, w)
		}
		m.Held, m.Why = w.Held, w.Why
	}
	for _, w := range freed {
		k.Fleet.Update(w.Worker.Name, fleet.Starting) // until somebody has looked
		k.Fleet.Report(w.Worker.Name, fleet.Status{})
	}
	if watch {
		k.Watch(ctx, k.present())
	}
	for _, w := range changed {
		k.tell(w)
	}
}

// tell says of one that is held how it stands.
func (k *Keeper) tell(w Worker) {
	if w.Held != 0 {
		k.Fleet.Report(w.Worker.Name, fleet.Status{Reason: w.Why, At: time.Now()})
		k.Fleet.Update(w.Worker.Name, w.Held)
	}
}

// join takes a worker in. leave takes it out again.
func (k *Keeper) join(w Worker) (leave func(), err error) {
	in := w.Worker
	if w.Held != 0 {
		in.State = w.Held
	}
	if w.Events == "" || k.Open == nil {
		return k.Fleet.Join(in)
	}
	addr, end, err := k.Open(w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name, err)
	}
	in.BlocksAddr = addr
	out, err := k.Fleet.Join(in)
	if err != nil {
		end()
		return nil, err
	}
	return func() { out(); end() }, nil
}

func (k *Keeper) present() (list []scrape.Target) {
	for _, m := range k.members {
		if m.Held == 0 {
			list = append(list, m.Target)
		}
	}
	return list
}
