package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spokegate/spokegate/envoy"
)

// caller asks the door what its Envoy asks, over one connection, so that the door's own part of an open stream can be told
// from Envoy's, the clients' and the engine's, which are many times as large.
type caller struct {
	conn *grpc.ClientConn
	site *site
	body []byte // of each request
}

// meterMemory is what one open stream holds in the door: its flight, its gRPC stream and its meter, by how the door's
// resident memory grows over n admitted requests whose answers have begun.
func (s *site) meterMemory(ctx context.Context, n int) ([]figure, error) {
	conn, err := grpc.NewClient("unix:"+s.run("door.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := &caller{conn: conn, site: s, body: requests(s.key, 1<<10, true)[0].body}
	ids := serials(n + n/10)
	warm, ids := ids[:n/10], ids[n/10:]
	closing, err := c.hold(ctx, warm) // so that what is there once is there
	if err != nil {
		return nil, err
	}
	closing()
	if err := c.await(ctx, 0); err != nil {
		return nil, err
	}
	before := s.doorProcess.rss()
	closing, err = c.hold(ctx, ids)
	if err != nil {
		return nil, err
	}
	grown := float64(s.doorProcess.rss()-before) / float64(n) / 1024
	closing()
	progress("door: %.1f KB for each of %d streams that its meter reads", grown, n)
	note := fmt.Sprintf("resident memory of the door alone, by %d streams that its meter reads, as behind Envoy Gateway", n)
	return []figure{alone("door.memory_10k", "KB", note, []float64{grown})}, c.await(ctx, 0)
}

// hold opens a stream for each request, and returns when the door has them all.
func (c *caller) hold(ctx context.Context, ids []string) (closing func(), err error) {
	streams, cancel := context.WithCancel(ctx)
	opened := make([]extprocv3.ExternalProcessor_ProcessClient, len(ids))
	var all errgroup.Group
	all.SetLimit(16)
	for i, id := range ids {
		all.Go(func() (err error) {
			opened[i], err = c.open(streams, id)
			return err
		})
	}
	if err = errors.Join(all.Wait(), c.await(ctx, len(ids))); err != nil {
		cancel()
		return nil, err
	}
	time.Sleep(time.Second) // for what is freed late
	return func() {
		end := bodyMessage("data: [DONE]\n\n", true)
		for _, s := range opened {
			_ = s.Send(end)
		}
		cancel()
	}, nil
}

// chunksBefore each stream is looked at, so that it has left what garbage it leaves.
const chunksBefore = 50

// open has a request admitted and its answer begin.
func (c *caller) open(ctx context.Context, id string) (extprocv3.ExternalProcessor_ProcessClient, error) {
	check := checkMessage(c.site.key, id, c.body)
	asking := metadata.AppendToOutgoingContext(ctx, envoy.CheckKey, envoy.CheckFull)
	if resp, err := authv3.NewAuthorizationClient(c.conn).Check(asking, check); err != nil || resp.GetOkResponse() == nil {
		return nil, fmt.Errorf("not admitted: %v %w", resp, err)
	}
	stream, err := extprocv3.NewExternalProcessorClient(c.conn).Process(ctx)
	if err != nil {
		return nil, err
	}
	chunk := bodyMessage(event(`{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}`), false)
	err = stream.Send(headMessage(id))
	for range chunksBefore {
		err = errors.Join(err, stream.Send(chunk))
	}
	return stream, err
}

// await returns when the door meters n streams.
func (c *caller) await(ctx context.Context, n int) error {
	limit := time.After(time.Minute)
	for {
		m, err := page("http://"+c.site.ops+"/metrics", " ")
		if err != nil {
			return err
		}
		if m.sum("spokegate_meter_streams") == float64(n) && m.sum("spokegate_flights_open") == float64(n) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return fmt.Errorf("the door meters %v streams and has %v flights, want %d", m.sum("spokegate_meter_streams"), m.sum("spokegate_flights_open"), n)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
