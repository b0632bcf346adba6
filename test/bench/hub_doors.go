package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // what rawCodec stands before

	"github.com/spokegate/spokegate/identity"
)

const realDoors = 20

// doorsSite is a hub and the doors of so many spokes, each a process of the shipped binary.
type doorsSite struct {
	site
	api, push string
	key       string
	doors     []authv3.AuthorizationClient
	conns     []*grpc.ClientConn
}

// revokeDoors is the time from the hub's answer that a key is revoked to the last door that refuses it, while all are asked as fast
// as they answer; beside the round trip of a message over as many bare gRPC streams, under the same load.
func revokeDoors(ctx context.Context, o options) ([]figure, error) {
	progress("hub: starting %d doors", realDoors)
	s, err := newDoorsSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.end()
	b := &bare{make(chan *bareStream), make(chan struct{}, realDoors)}
	streams, err := b.to(ctx, realDoors)
	if err != nil {
		return nil, err
	}
	var ours, against []float64
	for range max(o.rounds, 5) {
		took, idle, err := s.round(ctx, func() time.Duration { return b.broadcast(streams) })
		if err != nil {
			return nil, err
		}
		ours, against = append(ours, took.Seconds()*1e3), append(against, idle.Seconds()*1e3)
	}
	f := compared("hub.revoke_doors", "ms", fmt.Sprintf("a message to %d bare gRPC streams and back", realDoors), ours, against)
	progress("hub.revoke_doors: %s ms from the API's answer to the last of %d", short(f.Value), realDoors)
	return []figure{f}, nil
}

// round revokes the key under load, and takes that back.
func (s *doorsSite) round(ctx context.Context, bare func() time.Duration) (took, idle time.Duration, err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	refused := make([]time.Time, len(s.doors))
	failed := make([]error, len(s.doors))
	var asking sync.WaitGroup
	for i, d := range s.doors {
		asking.Go(func() { refused[i], failed[i] = untilRefused(ctx, d, s.key) })
	}
	time.Sleep(200 * time.Millisecond) // the load is on
	idle = bare()
	revision, err := s.ask(ctx, "/v1/keys/k/revoke", `{}`)
	if err != nil {
		return 0, 0, err
	}
	answered := time.Now()
	asking.Wait()
	if err := errors.Join(failed...); err != nil {
		return 0, 0, err
	}
	for _, at := range refused {
		took = max(took, at.Sub(answered))
	}
	if _, err := s.ask(ctx, fmt.Sprintf("/v1/revisions/%d/rollback", revision-1), `{"revive":true}`); err != nil {
		return 0, 0, err
	}
	return took, idle, s.allKnow(ctx)
}

// untilRefused asks until the key is refused.
func untilRefused(ctx context.Context, d authv3.AuthorizationClient, key string) (time.Time, error) {
	for i := 0; ; i++ {
		status, err := statusOf(ctx, d, key, i)
		switch {
		case err != nil:
			return time.Time{}, err
		case status == http.StatusUnauthorized:
			return time.Now(), nil
		case status != http.StatusOK:
			return time.Time{}, fmt.Errorf("a door answers %d", status)
		}
	}
}

// statusOf asks for the models that a key may use, which the door answers by itself.
func statusOf(ctx context.Context, d authv3.AuthorizationClient, key string, i int) (int32, error) {
	m := checkMessage(key, fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", i), nil)
	h := m.Attributes.Request.Http
	h.Method, h.Path = http.MethodGet, "/v1/models"
	h.Headers[":method"], h.Headers[":path"] = h.Method, h.Path
	delete(h.Headers, "content-length")
	delete(h.Headers, "content-type")
	resp, err := d.Check(ctx, m)
	return int32(resp.GetDeniedResponse().GetStatus().GetCode()), err
}

func newDoorsSite(ctx context.Context, o options) (_ *doorsSite, err error) {
	s := &doorsSite{}
	if s.dir, err = os.MkdirTemp("/tmp", "sgdoors"); err != nil {
		return nil, err
	}
	s.removes = true
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	s.api, s.push = ports[0], ports[1]
	secret, hash := identity.NewKey()
	s.key = secret
	for name, text := range map[string]string{"policy.yaml": fmt.Sprintf(policyText, hash), "join-token": strings.Repeat("bench-only-", 4)} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	s.child(&err, "hub", o.binary, "hub", "-dir", filepath.Join(s.dir, "hub"), "-listen", s.api, "-push-listen", s.push, "-ops", "127.0.0.1:0",
		"-import", filepath.Join(s.dir, "policy.yaml"), "-import-spoke", "spoke-1")
	for i := range realDoors {
		name := fmt.Sprint("spoke-", i+1)
		s.child(&err, name, o.binary, "door", "-dir", filepath.Join(s.dir, name), "-spoke", name, "-ops", "127.0.0.1:0",
			"-join-token-file", filepath.Join(s.dir, "join-token"), "-hub", s.push, "-hub-token-file", filepath.Join(s.dir, "hub", "push.token"))
		if i == 0 && err == nil { // the token is there once the hub is
			err = s.await(ctx, "http://"+s.api+"/openapi.json")
		}
		conn, bad := grpc.NewClient("unix:"+filepath.Join(s.dir, name, "run", "door.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err = errors.Join(err, bad); err != nil {
			return nil, err
		}
		s.conns, s.doors = append(s.conns, conn), append(s.doors, authv3.NewAuthorizationClient(conn))
	}
	err = s.allKnow(ctx)
	return s, err
}

// allKnow waits until the key passes at every door.
func (s *doorsSite) allKnow(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	for i, d := range s.doors {
		for {
			status, err := statusOf(ctx, d, s.key, i)
			if err == nil && status == http.StatusOK {
				break
			}
			if dead := s.died(); dead != nil || ctx.Err() != nil {
				return errors.Join(fmt.Errorf("door %d: %d", i+1, status), err, dead)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// ask changes something at the hub, and gives the revision that it made.
func (s *doorsSite) ask(ctx context.Context, path, body string) (revision uint64, err error) {
	token, err := os.ReadFile(filepath.Join(s.dir, "hub", "admin.token"))
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.api+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return 0, errors.Join(err, fmt.Errorf("%s: %s %s", path, resp.Status, text))
	}
	var made struct {
		Revision json.RawMessage `json:"revision"`
		Number   uint64          `json:"number"`
	}
	if err = json.Unmarshal(text, &made); err == nil && made.Number == 0 {
		err = json.Unmarshal(made.Revision, &made)
	}
	return made.Number, err
}

func (s *doorsSite) end() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.close()
}

// to opens streams from a server to so many clients, until ctx ends.
func (b *bare) to(ctx context.Context, n int) (streams []*bareStream, err error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
	g.RegisterService(&bareDesc, b)
	go func() { _ = g.Serve(lis) }()
	context.AfterFunc(ctx, g.Stop)
	for range n {
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		go func() { _ = talkTo(ctx, conn, 1); _ = conn.Close() }()
		streams = append(streams, <-b.joined)
	}
	return streams, nil
}

// broadcast is how long it takes until all have answered.
func (b *bare) broadcast(streams []*bareStream) time.Duration {
	start := time.Now()
	for _, s := range streams {
		s.send <- [][]byte{[]byte("one key of many is revoked, and that is all that this says")}
	}
	for range streams {
		<-b.replied
	}
	return time.Since(start)
}
