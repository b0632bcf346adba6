package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// blockMemory is what a router takes for each block that is held: of sessions that nobody shares, of one that a thousand workers
// share, and of prompts that were sent to workers which announce nothing.
func blockMemory(context.Context, options) ([]figure, error) {
	own, err := heap(func() (keep any, blocks int, err error) {
		h, err := newHerd(false)
		if err != nil {
			return nil, 0, err
		}
		_, held := h.router.Size()
		return h.router, held, nil
	})
	if err != nil {
		return nil, err
	}
	shared, err := heap(func() (any, int, error) {
		h := &herd{router: router.New(router.Config{})}
		blocks := manyBlocks(1, 1000)
		for i := range herdWorkers {
			h.router.Announced(fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), 0, hashSeed).Stored(blocks)
		}
		_, held := h.router.Size()
		return h.router, held, nil
	})
	if err != nil {
		return nil, err
	}
	sent, err := heap(func() (any, int, error) {
		const prompts, blocks = 1000, 940
		h, all := &herd{router: router.New(router.Config{}), rand: rand.New(rand.NewPCG(1, 1))}, 0
		h.router.SetWorkers([]router.Worker{{Addr: "10.0.0.1:1"}, {Addr: "10.0.0.2:1"}})
		for range prompts {
			text := h.text(blocks)
			all += len(text) / 64
			if err := h.pick(text, 0); err != nil {
				return nil, 0, err
			}
		}
		return h.router, all, nil
	})
	if err != nil {
		return nil, err
	}
	progress("router: %s bytes a block that one worker holds, %s where a thousand hold it, %s of a prompt that was sent", short(own), short(shared), short(sent))
	return []figure{
		alone("router.bytes_per_block", "B", "1,000,000 announced, of 1,000 workers", []float64{own}),
		alone("router.bytes_per_block_shared", "B", "for each worker that holds it, of 1,000", []float64{shared}),
		alone("router.bytes_per_block_sent", "B", "1,000 prompts of 55 KB, remembered where nothing is announced", []float64{sent}),
	}, nil
}

// heap is by how many bytes the heap grows for each block.
func heap(fill func() (keep any, blocks int, err error)) (float64, error) {
	var before, after runtime.MemStats
	collect := func(m *runtime.MemStats) {
		for range 3 { // for what pools hold, too
			runtime.GC()
		}
		runtime.ReadMemStats(m)
	}
	collect(&before)
	keep, blocks, err := fill()
	if err != nil {
		return 0, err
	}
	collect(&after)
	runtime.KeepAlive(keep)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(blocks), nil
}

// manyBlocks are one prompt's, of no text.
func manyBlocks(first uint32, n int) []blocktree.Block {
	all := make([]blocktree.Block, n)
	for i := range all {
		key := first + uint32(i)
		all[i] = blocktree.Block{Key: key, Parent: key - 1, Length: 50 + key%16, Hash: uint64(key) * 0x9e3779b97f4a7c15}
	}
	all[0].Parent = 0
	return all
}

// blockEvents stores and removes blocks of a hundred workers, as turns of 32, in CPU time: each worker's oldest turn goes, its last
// block first, when a new one comes.
func blockEvents(ctx context.Context, o options) ([]figure, error) {
	const workers, turn, room = 100, 32, 300
	r := router.New(router.Config{})
	var feeds []*router.Feed
	var turns [room][]blocktree.Block
	for i := range workers {
		feeds = append(feeds, r.Announced(fmt.Sprintf("10.0.0.%d:1", i), 0, hashSeed))
	}
	for i := range turns {
		turns[i] = manyBlocks(uint32(1+i*turn), turn)
		if i%10 > 0 { // sessions of ten
			turns[i][0].Parent = turns[i][0].Key - 1
		}
	}
	gone := make([]uint32, turn)
	step := 0
	one := func() error {
		at := step % room
		step++
		for _, f := range feeds {
			if step > room {
				for k := range gone {
					gone[k] = turns[at][turn-1-k].Key
				}
				f.Removed(blocktree.Device, gone...)
			}
			if f.Stored(turns[at]) > 0 {
				return errors.New("blocks have no place")
			}
		}
		return nil
	}
	for range room {
		if err := one(); err != nil {
			return nil, err
		}
	}
	var rates []float64
	for range o.rounds {
		nanos, _, err := cpuPerCall(one)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		rates = append(rates, workers*2*turn/nanos*1e9)
	}
	progress("router.events: %s blocks a second", short(median(rates)))
	return []figure{alone("router.events", "blocks/s", "stored and removed, on one core", rates)}, nil
}
