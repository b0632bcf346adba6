package join

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
)

// errEnd is a shim's orderly goodbye.
var errEnd = errors.New("the shim ended the stream")

var states = map[workerv1.State]fleet.State{
	workerv1.State_STATE_STARTING: fleet.Starting,
	workerv1.State_STATE_READY:    fleet.Ready,
	workerv1.State_STATE_DRAINING: fleet.Draining,
	workerv1.State_STATE_STOPPED:  fleet.Stopped,
	workerv1.State_STATE_FAILED:   fleet.Failed,
}

var engines = map[string]bool{"sim": true, "vllm": true, "sglang": true, "trtllm": true, "attached": true}

// inbox turns the blocking Recv into channels. Its goroutine ends with the stream, which gRPC ends when Join returns.
type inbox struct {
	messages chan *workerv1.JoinRequest
	failed   chan error
}

func (in *inbox) run(stream workerv1.Fleet_JoinServer) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errEnd
		}
		if err != nil {
			in.failed <- err
			return
		}
		select {
		case in.messages <- m:
		case <-stream.Context().Done():
			return
		}
	}
}

// worker reads Hello. The fleet checks all but the address.
func worker(h *workerv1.Hello) (fleet.Worker, error) {
	if h == nil {
		return fleet.Worker{}, status.Error(codes.InvalidArgument, "want Hello first")
	}
	if !engines[h.Engine] {
		return fleet.Worker{}, status.Errorf(codes.InvalidArgument, "engine %q is not known", printable(h.Engine))
	}
	addr, err := fleet.Canonical(h.Address) // all that is kept by it is found by what the fleet says
	if err != nil {
		return fleet.Worker{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return fleet.Worker{
		Name: h.Worker, Endpoint: h.Endpoint, Addr: addr, Engine: h.Engine, Epoch: h.Epoch,
		BlockSize: h.BlockSize, Blocks: h.Blocks, State: fleet.Starting, BlocksAddr: h.BlocksAddress, Version: h.Version,
		Ranks: h.Ranks, Role: h.Role,
	}, nil
}

// statusOf reads what a shim says of itself. What is not as the contract has it is made so: it decides nothing, and must not
// end the worker.
func statusOf(st *workerv1.Status, at time.Time) fleet.Status {
	s := fleet.Status{Reason: printable(st.Reason), Running: st.Running, At: at}
	for _, d := range st.Degraded[:min(len(st.Degraded), mostDegraded)] {
		s.Degraded = append(s.Degraded, degraded(d))
	}
	slices.Sort(s.Degraded)
	s.Degraded = slices.Compact(s.Degraded)
	if st.Load != nil {
		s.Load = new(loadOf(st.Load))
	}
	for _, l := range st.Ranks[:min(len(st.Ranks), fleet.MaxRanks)] {
		s.Ranks = append(s.Ranks, loadOf(l))
	}
	return s
}

func loadOf(l *workerv1.Load) fleet.Load {
	return fleet.Load{Running: l.GetRunning(), Waiting: l.GetWaiting(), CacheUsedPermille: min(l.GetCacheUsedPermille(), 1000), Preemptions: l.GetPreemptions()}
}

var causeForm = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// degraded is "CAUSE: DETAIL", whatever it was: causes are labels of metrics.
func degraded(s string) string {
	cause, detail, _ := strings.Cut(printable(s), ":")
	if !causeForm.MatchString(cause) {
		cause, detail = "other", printable(s)
	}
	if detail = strings.TrimSpace(detail); detail == "" {
		return cause
	}
	return cause + ": " + detail
}

// refusal maps the fleet's errors to gRPC codes; the shim retries AlreadyExists and gives up on InvalidArgument.
func refusal(err error) error {
	switch {
	case errors.Is(err, fleet.ErrDuplicate):
		return status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, fleet.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	default:
		return status.Error(codes.InvalidArgument, err.Error())
	}
}

func cause(err error) string {
	if err == nil {
		return "goodbye"
	}
	return status.Convert(err).Message()
}

// printable keeps a stranger's text short and on one line.
func printable(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}
