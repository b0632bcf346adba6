//go:build engine

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	inNetns     = "SPOKEGATE_TEST_NETNS"
	mockerBlock = 16
)

// TestDynamo holds what is announced of Dynamo's mocker, which publishes KV events in vLLM's form, against what Dynamo's own
// indexer says of the same events. Both bind all addresses, so they and this test run in a network of their own.
func TestDynamo(t *testing.T) {
	python := filepath.Join(the.root, ".tools/dynamo/bin/python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run test/setup/dynamo.sh first", err)
	}
	if os.Getenv(inNetns) == "" {
		apart(t)
		return
	}
	d := startDynamo(t, python)
	source := followEngine(t, "tcp://127.0.0.1:6557", "tcp://127.0.0.1:6657", tinyModel(t), mockerBlock)
	var texts []string
	for i := range 12 { // more than fits, so that blocks are evicted
		content := prompts(fmt.Sprint("mocked ", i, " "))[i%4]
		d.ask(t, content)
		texts = append(texts, chatML(content))
		ids := d.tokens(t, chatML(content))
		whole := len(ids) / mockerBlock * mockerBlock
		eventually(t, patience, fmt.Sprintf("all %d whole blocks of prompt %d", whole/mockerBlock, i), func() bool { return source.tokens(chatML(content)) == whole })
	}
	evicted := 0
	for i, text := range texts {
		ids := d.tokens(t, text)
		theirs, ours := 0, 0
		agree := func() bool {
			theirs, ours = d.indexed(t, ids), source.tokens(text)
			return theirs == ours
		}
		for until := time.Now().Add(patience / 4); !agree(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("of the %d tokens of prompt %d Dynamo's indexer finds %d, and we %d", len(ids), i, theirs, ours)
			}
		}
		if source.tokens(text) < len(ids)/mockerBlock*mockerBlock {
			evicted++
		}
	}
	if evicted == 0 || evicted == len(texts) {
		t.Errorf("%d of %d prompts are evicted: nothing is shown", evicted, len(texts))
	}
	say("Dynamo's indexer and ours agree on %d prompts, %d of them evicted in part", len(texts), evicted)
}

// apart runs this test again in a network namespace.
func apart(t *testing.T) {
	name := fmt.Sprint("spokegate-", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		say("NOT TESTED: Dynamo binds all addresses, and a network namespace cannot be made: %v %s", err, out)
		t.Skip("no network namespace")
	}
	defer func() { _ = exec.Command("ip", "netns", "del", name).Run() }()
	if out, err := exec.Command("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("ip", "netns", "exec", name, self, "-test.run", "^TestDynamo$", "-test.v", "-test.timeout", "15m")
	c.Env = append(os.Environ(), inNetns+"="+name)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}

// dynamo is a mocker behind a frontend, and an indexer.
type dynamo struct{ python string }

func startDynamo(t *testing.T, python string) *dynamo {
	env := []string{"DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV=" + the.path("dynamo-kv"), "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq",
		"HF_HUB_OFFLINE=1", "DO_NOT_TRACK=1"}
	start := func(name string, args ...string) {
		p, err := the.run(name, env, append([]string{python, "-m", "dynamo." + name}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.end)
	}
	start("mocker", "--model-path", the.modelDir(), "--model-name", model, "--num-workers", "1", "--speedup-ratio", "10",
		"--block-size", fmt.Sprint(mockerBlock), "--num-gpu-blocks-override", "64", "--zmq-kv-events-ports", "6557", "--zmq-replay-ports", "6657")
	start("frontend", "--http-port", "8000")
	eventually(t, 5*time.Minute, "Dynamo serves the model", func() bool {
		return strings.Contains(responds("http://127.0.0.1:8000/v1/models"), `"`+model+`"`)
	})
	start("indexer", "--block-size", fmt.Sprint(mockerBlock), "--model-name", model, "--workers", "1=tcp://127.0.0.1:6557")
	eventually(t, 5*time.Minute, "Dynamo's indexer answers", func() bool { return responds("http://127.0.0.1:8090/workers") != "" })
	d := &dynamo{python}
	// It asks for no replay, and loses for ever what follows a block that it missed: so first one that nothing follows must come.
	for i, until := 0, time.Now().Add(patience); ; i++ {
		text := fmt.Sprint(i, strings.Repeat(" warming up", 20))
		var answer any
		d.post(t, "http://127.0.0.1:8000/v1/completions", map[string]any{"model": model, "prompt": text, "max_tokens": 1}, &answer)
		if d.indexed(t, d.tokens(t, text)) > 0 {
			break
		} else if time.Now().After(until) {
			t.Fatal("Dynamo's indexer sees no block")
		}
	}
	return d
}

// responds is what is to be got there; empty: nothing.
func responds(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func (d *dynamo) post(t *testing.T, url string, body, answer any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var raw bytes.Buffer
	_, _ = raw.ReadFrom(resp.Body)
	if err := json.Unmarshal(raw.Bytes(), answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v %s", url, resp.StatusCode, err, raw.Bytes())
	}
}

func (d *dynamo) ask(t *testing.T, content string) {
	t.Helper()
	var answer any
	d.post(t, "http://127.0.0.1:8000/v1/chat/completions", map[string]any{"model": model, "messages": words(content), "max_tokens": 2}, &answer)
}

// indexed says how many tokens of a prompt the indexer finds at the worker.
func (d *dynamo) indexed(t *testing.T, ids []int) int {
	t.Helper()
	var answer struct {
		Scores map[string]map[string]int
	}
	d.post(t, "http://127.0.0.1:8090/query", map[string]any{"model_name": model, "token_ids": ids}, &answer)
	n := 0
	for _, ranks := range answer.Scores {
		for _, tokens := range ranks {
			n = max(n, tokens)
		}
	}
	return n
}

// tokens are the ids of a text, by the model's own tokenizer.
func (d *dynamo) tokens(t *testing.T, text string) (ids []int) {
	t.Helper()
	c := exec.Command(d.python, "-c", "import sys,json;from tokenizers import Tokenizer;print(json.dumps(Tokenizer.from_file(sys.argv[1]).encode(sys.stdin.read(),add_special_tokens=False).ids))",
		filepath.Join(the.modelDir(), "tokenizer.json"))
	c.Stdin = strings.NewReader(text)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &ids)
	}
	if err != nil || len(ids) == 0 {
		t.Fatalf("%v %s", err, out)
	}
	return ids
}
