package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/hub/api"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// TestHubByCertificates: the API over TLS, doors by their certificates. A spoke that joins is known, with what it says of its
// GPUs, and gets what is placed by that; one with another's certificate is not let in.
func TestHubByCertificates(t *testing.T) {
	t.Parallel()
	ca := mtlstest.New(t)
	own := ca.Issue(t, "127.0.0.1")
	h := startHub(t, "-tls-cert", own.Cert, "-tls-key", own.Key, "-cert", own.Cert, "-key", own.Key, "-ca", own.CA,
		"-import", filepath.Join(lab.root, "test", "testdata", "hub_policy.yaml"))
	h.url = "https://" + strings.TrimPrefix(h.url, "http://")
	if _, errs, code := h.run(t, "team", "list"); code != 1 || !strings.Contains(errs, "certificate") {
		t.Errorf("by nobody's authority: %d, %s", code, errs)
	}
	startDoor(t, h, ca, "east", "east")
	liar := startDoor(t, h, ca, "west", "east")
	// The spoke is known, in step, and has told of its GPUs; its usage records wait nowhere.
	eventually(t, startPatience, func() error {
		st, err := h.status(t, own.CA)
		if err != nil {
			return err
		}
		for _, s := range st.Spokes {
			if s.Name == "east" && len(s.Doors) == 1 && s.Doors[0].Connected && s.Doors[0].Revision == st.Revision && len(s.GPUs) == 1 && s.GPUs[0].Free == 4 {
				return nil
			}
		}
		return fmt.Errorf("east is not in step: %+v", st)
	})
	eventually(t, startPatience, func() error {
		if !strings.Contains(liar.out.String(), "spiffe://west/door/door-1") {
			return errors.New("the door with another's certificate is not told so")
		}
		return nil
	})
	if st, err := h.status(t, own.CA); err != nil || strings.Contains(fmt.Sprintf("%+v", st.Spokes), "west") {
		t.Errorf("west is known by another's certificate: %+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "big.yaml"), []byte("{name: big, placement: {gpu: h100, gpus: 3}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := h.run(t, "endpoint", "apply", "-f", "big.yaml", "-hub-ca", own.CA); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, _ := h.run(t, "endpoint", "show", "big", "-hub-ca", own.CA); !strings.Contains(out, "spoke: east") {
		t.Errorf("placed: %s%s", out, errs)
	}
	if _, errs, code := h.run(t, "spoke", "status", "east", "-hub-ca", own.CA); code == 2 {
		t.Errorf("status: %s", errs)
	}
}

// status is what the API tells of doors.
func (h *hubProcess) status(t *testing.T, ca string) (st api.Status, err error) {
	out, errs, _ := h.run(t, "spoke", "status", "-o", "json", "-hub-ca", ca)
	if out == "" {
		return st, errors.New(errs)
	}
	return st, json.Unmarshal([]byte(out), &st)
}

// startDoor starts a door without its Envoy, of a spoke, with the certificate of another perhaps.
func startDoor(t *testing.T, h *hubProcess, ca *mtlstest.Authority, spoke, certified string) *up {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sg") // sockets want short names
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "join.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("j", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := ca.Issue(t, certified)
	d := &up{name: "door", dir: dir, exited: make(chan struct{}), cmd: command("door", "-dir", dir, "-spoke", spoke, "-listen", freeAddr(), "-admin", freeAddr(),
		"-ops", freeAddr(), "-join-token-file", token, "-hub", h.push, "-hub-cert", f.Cert, "-hub-key", f.Key, "-hub-ca", f.CA, "-gpus", "h100=8/4")}
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.exited
		_ = os.RemoveAll(dir)
	})
	return d
}
