package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spokegate/spokegate/hub"
)

// itself is who does what nobody asked the API for.
var itself = hub.Actor{Name: "hub", Role: hub.RoleAdmin}

// prepare makes what a new hub lacks: an admin's token, and a first revision where one is given.
func (h *hubRoleFlags) prepare(ctx context.Context, of *hub.Hub, log *slog.Logger) error {
	file := filepath.Join(h.dir, "admin.token")
	switch made, err := of.Bootstrap(ctx, file); {
	case err != nil:
		return err
	case made:
		log.Info("the first admin token is made", "file", file)
	}
	if h.admin != "" {
		if err := h.newAdmin(ctx, of, h.admin, log); err != nil {
			return err
		}
	}
	if h.above > 0 {
		r, err := of.ContinueAbove(ctx, itself, h.above)
		if err != nil {
			return fmt.Errorf("-continue-above: %w", err)
		}
		log.Info("revisions are numbered above what was said", "above", h.above, "revision", r.Number)
	}
	switch head := of.Head(); {
	case h.importFile == "":
		return nil
	case head.Number > 0:
		log.Info("-import is not looked at: there is a revision already; spokegate apply brings changes", "file", h.importFile, "revision", head.Number)
		return nil
	}
	data, err := os.ReadFile(h.importFile)
	if err != nil {
		return fmt.Errorf("-import: %w", err)
	}
	r, err := of.Import(ctx, hub.Commit{Actor: itself, Message: "from " + filepath.Base(h.importFile)},
		hub.Import{File: h.importFile, YAML: data, Spoke: h.importSpoke})
	if err != nil {
		return fmt.Errorf("-import: %w", err)
	}
	log.Info("the first revision is there", "file", h.importFile, "revision", r.Number, "things", r.Changes)
	return nil
}

// newAdmin makes an admin's token, and writes it where only this user reads it. The file is made first, so that no token is
// made which nobody knows.
func (h *hubRoleFlags) newAdmin(ctx context.Context, of *hub.Hub, name string, log *slog.Logger) error {
	path := filepath.Join(h.dir, name+".token")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the hub has no admin token %s in its database, and %s holds another one: move that file away", name, path)
	}
	if err != nil {
		return err
	}
	_, secret, err := of.CreateToken(ctx, hub.Commit{Actor: itself, Message: "for who starts the hub"}, hub.Token{Name: name, Role: hub.RoleAdmin})
	if err == nil {
		_, err = fmt.Fprintln(f, secret)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(path)
		return err
	}
	log.Info("an admin token is made", "token", name, "file", path)
	return nil
}

// madeToken reads the token of doors on this machine, and makes it where it is missing.
func madeToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readSecret(path, "the doors' token")
	}
	if err != nil {
		return "", err
	}
	token := rand.Text() + rand.Text()
	_, err = fmt.Fprintln(f, token)
	return token, errors.Join(err, f.Close())
}

// certFile is a certificate that is read anew when its file changes. What cannot be read leaves the one before in force.
type certFile struct {
	cert, key string
	log       *slog.Logger

	mu   sync.Mutex
	at   time.Time
	held *tls.Certificate
}

func (c *certFile) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
}

// expires is the end of the one that is in force; there is one.
func (c *certFile) expires() time.Time {
	pair, _ := c.get(nil)
	return pair.Leaf.NotAfter
}

func (c *certFile) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := os.Stat(c.cert)
	if err == nil && c.held != nil && st.ModTime().Equal(c.at) {
		return c.held, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.cert, c.key)
	}
	switch {
	case err == nil:
		c.held, c.at = &pair, st.ModTime()
	case c.held == nil:
		return nil, fmt.Errorf("-tls-cert: %w", err)
	default:
		c.log.Warn("the API's certificate has changed and cannot be used; the one before stays in force", "error", err)
	}
	return c.held, nil
}
