package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/segmentio/kafka-go"
)

// fakeBroker keeps what it gets. Each step may fail, or fail and have happened.
type fakeBroker struct {
	mu       sync.Mutex
	rng      *rand.Rand
	percent  int // of steps that fail
	failures int
	refuse   func(value []byte) bool // for good
	got      map[string][]string     // topic/partition → ids
}

func newFakeBroker(seed uint64, percent int) *fakeBroker {
	return &fakeBroker{
		rng: rand.New(rand.NewPCG(seed, 2)), percent: percent, got: map[string][]string{},
		refuse: func([]byte) bool { return false },
	}
}

var errBroker = errors.New("the broker is ill")

func (b *fakeBroker) fault() (fails, happens bool) {
	if b.rng.IntN(100) >= b.percent {
		return false, true
	}
	b.failures++
	return true, b.rng.IntN(2) == 0
}

func (b *fakeBroker) partitions(context.Context, string) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fails, _ := b.fault(); fails {
		return 0, errBroker
	}
	return 3, nil
}

func (b *fakeBroker) produce(_ context.Context, topic string, partition int, events []*event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		if b.refuse(e.value) {
			return fmt.Errorf("refused: %w", kafka.MessageSizeTooLarge)
		}
	}
	fails, happens := b.fault()
	if happens {
		lane := fmt.Sprintf("%s/%d", topic, partition)
		for _, e := range events {
			b.got[lane] = append(b.got[lane], string(e.headers[2].Value))
		}
	}
	if fails {
		return errBroker
	}
	return nil
}

func (b *fakeBroker) reset() {}

// firsts returns the ids in the order of their first coming, by lane.
func (b *fakeBroker) firsts() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	firsts := map[string][]string{}
	for lane, ids := range b.got {
		seen := map[string]bool{}
		for _, id := range ids {
			if !seen[id] {
				firsts[lane] = append(firsts[lane], id)
			}
			seen[id] = true
		}
	}
	return firsts
}
