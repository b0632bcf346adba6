package worker

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// session is the state of one stream; only its own goroutine touches it.
type session struct {
	door     *door
	stream   workerv1.Fleet_JoinClient
	told     Description // in Hello
	name     string      // the door's, once welcomed
	keys     []string    // what is held of its welcome: keys, and a secret
	box      *begunBox   // what the door is to hear of its requests
	beat     time.Duration
	welcomes chan *workerv1.Welcome
	ended    chan error
}

func (s *session) receive(ctx context.Context) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			s.ended <- err
			return
		}
		if c := m.GetCancel(); c != nil {
			s.door.cut(c.Admission, c.Reason)
			continue
		}
		w := m.GetWelcome()
		if w == nil {
			continue
		}
		select {
		case s.welcomes <- w:
		case <-ctx.Done():
		}
	}
}

// run tells the door of each change and beats, until either side ends it.
func (s *session) run(ctx context.Context) error {
	s.beat = beatFirst
	beat := time.NewTimer(s.beat)
	defer beat.Stop()
	for {
		at, changed := s.door.states.now()
		if at.hello != s.told {
			return errEngineChanged
		}
		if s.name != "" { // the door wants to speak first
			at.causes = s.door.seeds.causes(at.causes)
			if err := s.stream.Send(statusOf(at)); err != nil {
				return s.cause(err)
			}
		}
		if at.state == workerv1.State_STATE_STOPPED {
			return errStopped
		}
		beat.Reset(s.beat * 3 / 4)
		if err := s.wait(ctx, changed, beat.C); err != nil {
			return err
		}
	}
}

// wait returns when the door is to be told how the worker is. What has begun goes out meanwhile, together with what begins soon after.
func (s *session) wait(ctx context.Context, changed <-chan struct{}, beat <-chan time.Time) error {
	var gathered <-chan time.Time // nil: nothing has begun
	for {
		select {
		case <-s.box.filled:
			if gathered == nil {
				gathered = time.After(begunGather)
			}
		case <-gathered:
			gathered = nil
			if err := s.tellBegun(true); err != nil {
				return err
			}
		case <-changed:
			return s.tellBegun(gathered != nil)
		case <-beat:
			return s.tellBegun(gathered != nil)
		case w := <-s.welcomes:
			if err := s.tellBegun(gathered != nil); err != nil {
				return err
			}
			return s.welcome(w)
		case err := <-s.ended:
			s.ended <- err
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *session) tellBegun(some bool) error {
	if !some {
		return nil
	}
	if err := s.stream.Send(s.door.begun.take(s.box)); err != nil {
		return s.cause(err)
	}
	return nil
}

// end waits until the stream is over. After a goodbye the door has forgotten us then: only so can the name join again.
func (s *session) end(cancel context.CancelFunc, goodbye bool) {
	if goodbye {
		_ = s.stream.CloseSend()
		defer time.AfterFunc(goodbyeMost, cancel).Stop()
	} else {
		cancel()
	}
	for {
		select {
		case <-s.welcomes:
		case <-s.ended:
			return
		}
	}
}

func (s *session) welcome(w *workerv1.Welcome) error {
	if w.Door == "" || len(w.Keys) == 0 {
		return errors.New("the door's welcome has no name, or no key")
	}
	held, err := s.hold(w)
	if err != nil {
		s.door.keys.release(held)
		return err
	}
	s.door.keys.release(s.keys) // of the welcome before this one
	s.keys = held
	wants := ""
	if w.Begun {
		wants = w.Door
	}
	s.door.begun.name(s.box, wants)
	s.door.seeds.name(s, w.Door, w.HashSeed)
	if ms := time.Duration(w.BeatMs) * time.Millisecond; ms > 0 {
		s.beat = min(max(ms, beatLeast), beatMost)
	}
	if s.name == "" { // last: who sees that we have joined may count on all of the welcome
		s.name = w.Door
		s.door.doors.joined(s.door.target, s.name)
		s.door.log.Info("joined door", "door", w.Door, "target", s.door.target)
	}
	return nil
}

// hold trusts what a welcome names: held is what it got to.
func (s *session) hold(w *workerv1.Welcome) (held []string, err error) {
	for _, k := range w.Keys {
		if err := s.door.keys.hold(k.Id, k.PublicKey); err != nil {
			return held, err
		}
		held = append(held, k.Id)
	}
	if w.Mac == nil {
		return held, nil
	}
	as, err := s.door.keys.holdSecret(w.Mac.Id, w.Mac.Secret)
	if err != nil {
		return held, err
	}
	return append(held, as), nil
}

func (s *session) release() {
	s.door.keys.release(s.keys)
	s.door.begun.name(s.box, "")
	s.door.seeds.forget(s)
	if s.name != "" {
		s.door.doors.left(s.door.target)
	}
}

// cause is why a send failed: gRPC tells it at the receiving side.
func (s *session) cause(err error) error {
	if status.Code(err) != codes.Unknown {
		return err
	}
	select {
	case ended := <-s.ended:
		s.ended <- ended
		return ended
	case <-time.After(time.Second):
		return err
	}
}

func statusOf(at standing) *workerv1.JoinRequest {
	return &workerv1.JoinRequest{Message: &workerv1.JoinRequest_Status{
		Status: &workerv1.Status{State: at.state, Reason: at.reason, Running: at.running, Degraded: at.causes, Load: at.load, Ranks: at.ranks}}}
}
