package main

import (
	"context"
	"fmt"
	"time"
)

// memory is what one open stream holds in Envoy and door, by how their resident memory grows over n of them. Both sides
// are measured once, on processes that have served little.
func (s *site) memory(ctx context.Context, n int) ([]figure, error) {
	grown := map[string]float64{}
	parts := map[*process]float64{}
	for _, t := range []target{s.plain, s.door} {
		before, err := s.warm(ctx, t)
		if err != nil {
			return nil, err
		}
		after, err := s.heldStreams(ctx, t, n)
		if err != nil {
			return nil, err
		}
		for i, p := range t.processes {
			parts[p] = float64(after[i]-before[i]) / float64(n) / 1024
			grown[t.name] += parts[p]
		}
		progress("%s: %.1f KB for each of %d open streams", t.name, grown[t.name], n)
	}
	plain := []float64{grown["plain"]}
	return []figure{
		compared("door.memory_stream", "KB", fmt.Sprintf("%s, resident memory by %d open streams", plainNote, n), []float64{grown["door"]}, plain),
		compared("door.memory_stream_envoy", "KB", plainNote, []float64{parts[s.doorEnvoy]}, plain),
		compared("door.memory_stream_door", "KB", plainNote+"'s own", []float64{parts[s.doorProcess]}, plain),
	}, nil
}

// warm serves a little, so that what is loaded only once is not counted.
func (s *site) warm(ctx context.Context, t target) ([]int64, error) {
	if _, err := s.side(ctx, t, work{name: "warm-up", requests: requests(s.key, 1<<10, true), conns: 16, chunks: 20}, 320); err != nil {
		return nil, err
	}
	time.Sleep(time.Second) // for what is freed late
	return residents(t), nil
}

func residents(t target) (all []int64) {
	for _, p := range t.processes {
		all = append(all, p.rss())
	}
	return all
}

// heldStreams reads the memory while n streams are open and have brought their first chunk.
func (s *site) heldStreams(ctx context.Context, t target, n int) ([]int64, error) {
	w := work{name: "open streams", requests: requests(s.key, 1<<10, true), conns: n, chunks: 2}
	s.engine.chunks.Store(2)
	s.engine.pace.Store(0)
	clients, err := s.clients(t, w, 1)
	defer func() {
		for _, c := range clients {
			c.conn.net.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	release := s.engine.holding()
	ended, err := openAll(ctx, clients)
	if err != nil {
		release()
		return nil, fmt.Errorf("streams did not stay open: %w", err)
	}
	time.Sleep(time.Second)
	now := residents(t)
	release()
	return now, <-ended
}
