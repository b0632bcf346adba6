package main

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/policy"
)

func TestHubFlagsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "",
		"-hub=127.0.0.1:1 -hub-token-file=t": "",
		"-hub=unix:/x -hub-token-file=t -policy-max-age=1h":      "",
		"-hub=hub:1 -hub-cert=c -hub-key=k -hub-ca=a":            "",
		"-hub=127.0.0.1:1 -hub-token-file=t -gpus=H100=8/2,L4=1": "",
		"-hub=hub:1 -hub-token-file=t":                           "across the network",
		"-hub=127.0.0.1:1":                                       "-hub-token-file",
		"-hub-name=x":                                            "of no use without -hub",
		"-policy-max-age=1h":                                     "of no use without -hub",
		"-hub=unix:/x -hub-token-file=t -policy-max-age=1s":      "at least 1m0s",
		"-hub=unix:/x -hub-token-file=t -policy-max-age=-1h":     "at least 1m0s",
		"-hub=unix:/x -hub-token-file=t -gpus=H100":              "-gpus",
		"-hub=unix:/x -hub-token-file=t -gpus=H100=1/2":          "-gpus",
		"-hub=unix:/x -hub-token-file=t -labels=a":               "-labels",
		"-hub=unix:/x -hub-token-file=t -labels=a=1,a=2":         "-labels",
		"-hub=unix:/x -hub-token-file=t -labels=a=1,b=x=y":       "",
	} {
		var h hubFlags
		f := flag.NewFlagSet("door", flag.ContinueOnError)
		h.register(f)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := h.complete(""); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
		if err := h.complete("policy.yaml"); h.address != "" && (err == nil || !strings.Contains(err.Error(), "give one of them")) {
			t.Errorf("%s with -policy: %v", args, err)
		}
	}
}

// TestPolicyThatIsTooOldAdmitsNobody, and says so; without -policy-max-age the door goes on.
func TestPolicyThatIsTooOldAdmitsNobody(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	for path, text := range map[string]string{token: strings.Repeat("t", 32), filepath.Join(dir, "policy", "heard"): time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := &door{registry: prometheus.NewRegistry(), policy: &policy.Current{}, log: slog.New(slog.DiscardHandler),
		doorFlags: doorFlags{dir: dir, spoke: "s", name: "d", hubFlags: hubFlags{address: "unix:" + dir + "/none", tokenFile: token}}}
	if _, err := d.source(); err != nil {
		t.Fatal(err)
	}
	defer d.hub.Close()
	if age := d.policyAge(); age < 2*time.Hour || age > 3*time.Hour {
		t.Errorf("age %v", age)
	}
	ready := func() report {
		var r report
		health{hub: d.hub, tooOld: d.tooOld}.hubOf(&r)
		return r
	}
	if why := d.tooOld(); why != "" || ready().failed {
		t.Errorf("without a maximum: %q", why)
	}
	d.hubFlags.maxAge = 3 * time.Hour
	if why := d.tooOld(); why != "" {
		t.Errorf("within it: %q", why)
	}
	d.hubFlags.maxAge = time.Hour
	if why := d.tooOld(); !strings.HasPrefix(why, "the door's policy is too old: its hub has not been heard for 2h0m") {
		t.Errorf("beyond it: %q", why)
	}
	if r := ready(); !r.failed || !strings.Contains(strings.Join(r.lines, "\n"), "not heard since") {
		t.Errorf("%q", r.lines)
	}
}

// TestStoresAreToldApart: two stores that are taken for one would each hide what the other has counted.
func TestStoresAreToldApart(t *testing.T) {
	one := storeOf("redis://:secret@redis-1:6379/0")
	if one == storeOf("redis://:secret@redis-2:6379/0") || one == storeOf("redis://:secret@redis-1:6379/1") {
		t.Error("two stores have one name")
	}
	if one != storeOf("redis://other:password@redis-1:6379/0") || strings.Contains(one, "secret") {
		t.Errorf("%s depends on who asks", one)
	}
}
