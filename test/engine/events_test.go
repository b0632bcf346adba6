//go:build engine

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
	"golang.org/x/text/unicode/norm"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/worker/kv"
)

const (
	eventSeed  = 0x5eed
	eventToken = "events"
)

// blocks is what a picker holds of one engine: it follows an announcer of the test's own, at the engine's own sockets.
type blocks struct {
	mu      sync.Mutex
	held    map[uint64]*workerv1.Block
	profile *workerv1.Profile
}

// followEngine announces and follows what an engine publishes in a folder, until the tests end.
func followEngine(t *testing.T, events, replay string, model *kv.Model, size uint32) *blocks {
	t.Helper()
	source, err := kv.New(kv.Config{Feeds: []kv.Feed{{Events: events, Replay: replay}}, Model: model, BlockSize: size,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("events", events)})
	if err != nil {
		t.Fatal(err)
	}
	source.SetSeed(eventSeed)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go source.Run(context.Background())
	go func() { _ = source.NewServer(eventToken, nil).Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+eventToken)
	stream, err := workerv1.NewBlocksClient(conn).Follow(ctx, &workerv1.FollowRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := &blocks{held: map[uint64]*workerv1.Block{}}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			b.take(r)
		}
	}()
	return b
}

// take is a picker's part, for engines with one tier.
func (b *blocks) take(r *workerv1.FollowResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := r.GetProfile(); p != nil {
		b.profile = p
	}
	if s := r.GetSnapshot(); s != nil {
		if s.First {
			clear(b.held)
		}
		for _, block := range s.Blocks {
			b.held[block.Key] = block
		}
	}
	for _, c := range r.GetChanges().GetChanges() {
		switch c := c.Change.(type) {
		case *workerv1.Change_Stored:
			b.held[c.Stored.Key] = c.Stored
		case *workerv1.Change_Removed:
			delete(b.held, c.Removed.Key)
		case *workerv1.Change_Cleared:
			clear(b.held)
		}
	}
}

// tokens says how many tokens of a text a picker finds: block behind block, by the bytes alone, after what the profile says
// that the tokenizer does first.
func (b *blocks) tokens(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.profile.GetNormalizer() == "nfc" {
		text = norm.NFC.String(text)
	}
	for parent := uint64(0); ; {
		var next *workerv1.Block
		for _, o := range b.held {
			if o.Parent == parent && o.Tier != 0 && int(o.Length) <= len(text) && o.Root == 0 && xxh3.HashSeed([]byte(text[:o.Length]), eventSeed) == o.Hash {
				next = o
			}
		}
		if next == nil {
			return n
		}
		n, text, parent = n+int(next.Tokens), text[next.Length:], next.Key
	}
}

func (b *blocks) told() *workerv1.Profile {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.profile
}

// prompts are texts of many kinds, each in the tiny model's template.
func prompts(mark string) (contents []string) {
	for _, text := range []string{
		"The quick brown fox jumps over the lazy dog, and then does it again because nobody looked. ",
		"func main() {\n\tfmt.Println(\"héllo, wörld\", 0x1F)\n}\n\n\n    // 42  spaces\n",
		"你好，世界。これは日本語です。한국어도 있습니다. ",
		"👩‍👩‍👧‍👦 🇩🇪 e\u0301 \u00a0 \t\t \u202e ",
	} {
		contents = append(contents, mark+strings.Repeat(text, 8))
	}
	return contents
}

func chatML(content string) string {
	return "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n" + content + "<|im_end|>\n<|im_start|>assistant\n"
}

// askTokens sends a prompt and gives how many tokens it had, by the engine's count.
func askTokens(t *testing.T, model, content string) int {
	t.Helper()
	a := the.ask(t.Context(), map[string]any{"model": model, "messages": words(content), "max_tokens": 3, "ignore_eos": true})
	var answer struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &answer); err != nil || a.status != http.StatusOK || answer.Usage.Prompt == 0 {
		t.Fatalf("%d %v %s", a.status, err, a.body)
	}
	return answer.Usage.Prompt
}

// seen are the blocks of the first worker.
var seen *blocks

func engineSockets(worker string) (events, replay string) {
	folder := "ipc://" + the.path("run/engine-"+worker)
	return folder + "/inproc-kv", folder + "/inproc-replay"
}

func tinyModel(t *testing.T) *kv.Model {
	t.Helper()
	m, err := kv.ReadModel(the.modelDir())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// testEvents: what the real engine publishes, announced as bytes, is the bytes of the prompts that it read: all whole blocks
// of them are found, and no more.
func testEvents(t *testing.T) {
	events, replay := engineSockets("gpu-1")
	seen = followEngine(t, events, replay, tinyModel(t), 16) // which is wrong
	for _, content := range prompts("first ") {
		n := askTokens(t, model, content)
		text := chatML(content)
		eventually(t, patience, fmt.Sprintf("%d whole blocks of %.40q", n/blockSize, content), func() bool { return seen.tokens(text) == n/blockSize*blockSize })
		say("%d tokens of %d bytes: %d blocks found by their bytes", n, len(text), n/blockSize)
	}
	p := seen.told()
	if p.Mode != workerv1.Profile_MODE_INDEXED || p.BlockSize != blockSize || !p.TellsRoots || !strings.Contains(p.ChatTemplate, "<|im_start|>") {
		t.Errorf("profile: %v %q, blocks of %d, roots %v", p.Mode, p.Reason, p.BlockSize, p.TellsRoots)
	}
	eventually(t, patience, "the shim itself announces blocks", func() bool {
		page := first.page("/metrics")
		return strings.Contains(page, `spokegate_worker_kv_blocks{tier="device"}`) && !strings.Contains(page, `spokegate_worker_kv_blocks{tier="device"} 0`)
	})
}

// testEventsAfterRestart: the engine was killed, and started again behind the same sockets: nothing of before is announced.
func testEventsAfterRestart(t *testing.T) {
	old := prompts("first ")[0]
	eventually(t, patience, "the blocks of before are forgotten", func() bool { return seen.tokens(chatML(old)) == 0 })
	content := prompts("again ")[0]
	n := askTokens(t, model, content)
	eventually(t, patience, "the blocks of the new engine", func() bool { return seen.tokens(chatML(content)) == n/blockSize*blockSize })
	if got := seen.tokens(chatML(old)); got != 0 {
		t.Errorf("%d tokens of before the restart are announced", got)
	}
}

// testEventsOtherBlockSize: an engine with another block size than was configured is followed by its own.
func testEventsOtherBlockSize(t *testing.T) {
	events, replay := engineSockets("gpu-2")
	b := followEngine(t, events, replay, tinyModel(t), blockSize)
	const size = 2 * blockSize
	content := prompts("other ")[0]
	n := askTokens(t, otherModel, content)
	eventually(t, patience, "the blocks of the other engine", func() bool { return b.tokens(chatML(content)) == n/size*size })
	if p := b.told(); p.BlockSize != size {
		t.Errorf("blocks of %d tokens are told", p.BlockSize)
	}
}
