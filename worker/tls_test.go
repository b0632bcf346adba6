package worker

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// certified are the two sides of a connection that trust each other.
func certified(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler())
	defer lender.Close()
	trusting := lender.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.ServerName = "example.com"
	return &tls.Config{Certificates: lender.TLS.Certificates}, trusting
}

func TestEncrypted(t *testing.T) {
	serving, trusting := certified(t)
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) { sse(w, "data: [DONE]\n\n") }), func(c *Config) { c.TLS = serving })
	if s.cfg.TLS != serving || len(serving.NextProtos) != 0 {
		t.Error("the caller's configuration was changed")
	}
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		var protocols http.Protocols
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting.Clone(), Protocols: &protocols}}
		q := s.request(t, context.Background(), proto, "/v1/chat/completions", streamBody)
		q.URL.Scheme = "https"
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		client.CloseIdleConnections()
		if err != nil || withoutNotes(string(body)) != "data: [DONE]\n\n" || resp.Proto != proto {
			t.Errorf("%s: %s %q %v", proto, resp.Proto, body, err)
		}
	}
	resp, err := s.client.Do(s.request(t, context.Background(), "plain", "/v1/chat/completions", streamBody))
	if err == nil {
		resp.Body.Close()
	}
	if err == nil && resp.StatusCode != http.StatusBadRequest || len(s.journal.of("plain")) != 0 {
		t.Errorf("unencrypted: %v %v", resp, err)
	}
}
