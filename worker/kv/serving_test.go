package kv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

func TestWhyNothingIsAnnounced(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"publishes no KV events":                    func(c *Config) {},
		"tokenizer.json: no such file":              func(c *Config) { nowhere(c); c.Model, c.Why = nil, "tokenizer.json: no such file" },
		"the engine's events are waited for at tcp": nowhere,
	} {
		s := newSource(t, nil, change)
		s.say()
		p := newPicker(t)
		p.pull(s.announcer)
		mode := workerv1.Profile_MODE_DEGRADED
		if len(s.cfg.Feeds) == 0 {
			mode = workerv1.Profile_MODE_PREDICTIVE // there is nothing that should come
		}
		if p.profile.GetMode() != mode || !strings.Contains(p.profile.GetReason(), want) {
			t.Errorf("%v, want %q", p.profile, want)
		}
		if p.said.snapshots != 1 || len(p.blocks) != 0 {
			t.Errorf("%s: %d snapshots", want, p.said.snapshots)
		}
	}
	s, err := New(Config{Feeds: []Feed{{Events: "tcp://127.0.0.1:5557"}}, Model: SimModel()})
	if err != nil {
		t.Fatal(err)
	}
	p := newPicker(t)
	p.pull(s.announcer)
	if !strings.Contains(p.profile.Reason, "no door has told the seed") {
		t.Errorf("%v", p.profile)
	}
	if _, err := New(Config{Feeds: []Feed{{Events: "5557"}}, Model: SimModel()}); err == nil {
		t.Error("an address that is none is taken")
	}
}

// Endpoints are read as engines read them.
func TestFeeds(t *testing.T) {
	for _, c := range []struct {
		events, replay, host string
		ranks                int
		want                 string
	}{
		{"tcp://*:5557", "tcp://*:5558", "", 1, "[{tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 false}]"},
		{"tcp://*:5557", "", "10.0.0.7", 2, "[{tcp://10.0.0.7:5557  false} {tcp://10.0.0.7:5558  false}]"},
		{"tcp://127.0.0.1:5557", "tcp://127.0.0.1:5560", "", 2, "[{tcp://127.0.0.1:5557 tcp://127.0.0.1:5560 true} {tcp://127.0.0.1:5558 tcp://127.0.0.1:5561 true}]"},
		{"tcp://[::1]:5557", "", "", 1, "[{tcp://[::1]:5557  false}]"},
		{"ipc:///run/e", "ipc:///run/r", "", 1, "[{ipc:///run/e ipc:///run/r false}]"},
		{"ipc:///run/e", "", "", 2, ""}, {"ipc://", "", "", 1, ""}, {"tcp://*:0", "", "", 1, ""}, {"tcp://*:65535", "", "", 2, ""}, {"5557", "", "", 1, ""},
		{"tcp://*:5557", "5558", "", 1, ""}, {"tcp://*:5557", "", "", 65, ""}, {"tcp://*:5557", "", "", 0, ""}, {"tcp://:5557", "", "", 1, ""},
	} {
		got, err := Feeds(c.events, c.replay, c.host, c.ranks)
		if text := fmt.Sprint(got); err == nil && text != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %s, %v", c, text, err)
		}
	}
}

// nowhere is a feed that never connects.
func nowhere(c *Config) { c.Feeds = []Feed{{Events: "tcp://127.0.0.1:1"}} }

func TestNobodyFollowsWithoutTheToken(t *testing.T) {
	c, _ := client(t, serve(t, newSource(t, nil, nil)))
	for _, header := range [][]string{nil, {"authorization", "Bearer wrong"}, {"authorization", token},
		{"authorization", "Bearer " + token, "authorization", "Bearer " + token}} {
		stream, err := c.Follow(metadata.AppendToOutgoingContext(t.Context(), header...), &workerv1.FollowRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// Ten pickers share one snapshot, and one that takes nothing holds up neither the others nor the engine.
func TestAPickerThatLags(t *testing.T) {
	s := newSource(t, nil, nowhere)
	s.announcer.ringMost = 128 << 10
	address := serve(t, s)
	c, ctx := client(t, address)
	slow, err := c.Follow(ctx, &workerv1.FollowRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Recv(); err != nil { // and then takes nothing for a while
		t.Fatal(err)
	}
	var others []*follower
	for range 9 {
		others = append(others, follow(t, address))
	}
	for _, f := range others {
		f.see("a snapshot", func(p *picker) bool { return p.said.snapshots > 0 })
	}
	if n := s.announcer.counts().snapshots; n > 3 { // of the epoch before the seed, of the one after it
		t.Errorf("%d snapshots for ten pickers", n)
	}
	for _, f := range others[1:] {
		f.stop()
	}
	name := Hash(0)
	for until := 2 << 20; until > 0; until -= blockBytes * 1000 { // more than is kept for one that lags
		events := make([]Event, 1000)
		for i := range events {
			name++
			events[i] = Event{Kind: Stored, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{name}, Tokens: []uint32{uint32(name)}, BlockSize: 1}
			if name > 1000 {
				s.announcer.apply(0, []Event{{Kind: Removed, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{name - 1000}}})
			}
		}
		s.announcer.apply(0, events)
	}
	others[0].see("the end", func(p *picker) bool { return len(p.blocks) == 1000 })
	p := newPicker(t)
	for deadline := time.Now().Add(time.Minute); len(p.blocks) != 1000 || p.said.snapshots < 2; {
		r, err := slow.Recv()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v after %d snapshots, %d blocks", err, p.said.snapshots, len(p.blocks))
		}
		p.take(r)
	}
}
