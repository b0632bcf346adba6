package mtls

import (
	"crypto/x509"
	"fmt"
	"slices"
)

// DoorURI is the URI of a door in a certificate.
func DoorURI(spoke, door string) string { return "spiffe://" + spoke + "/door/" + door }

// IsDoor says what is against a certificate being that of a door of a spoke, towards its hub: it must have the spoke's name as a
// DNS name, which is good for all its doors, or DoorURI. A worker's URI is against it: one authority may vouch for both.
func IsDoor(c *x509.Certificate, spoke, door string) error {
	named := slices.Contains(c.DNSNames, spoke) || hasURI(c, func(u string) bool { return u == DoorURI(spoke, door) })
	if named && !hasURI(c, isWorkers) {
		return nil
	}
	return fmt.Errorf("the certificate names %s: want the DNS name %s or the URI %s, and no worker's", subjects(c), spoke, DoorURI(spoke, door))
}
