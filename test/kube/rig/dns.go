package rig

import (
	"golang.org/x/net/dns/dnsmessage"
)

// domain is the cluster's.
const domain = "cluster.local"

// serveNames answers questions for addresses until its socket is closed. Nothing outside of the cluster is known.
func (s *services) serveNames() {
	defer s.done.Done()
	buf := make([]byte, 4096)
	for {
		n, from, err := s.dns.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := s.answer(buf[:n]); err == nil {
			_, _ = s.dns.WriteTo(answer, from)
		}
	}
}

func (s *services) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	found, known := s.lookup(q.Name.String())
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	if q.Type == dnsmessage.TypeA {
		for _, addr := range found {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(addr.To4())},
			})
		}
	}
	return m.Pack()
}
