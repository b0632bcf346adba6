package usage

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Digest is the SHA-256 of a record's JSON, byte for byte as it stands in the journal and as the value of its Kafka message.
//
// Each record of a source that keeps a chain names the digest of the record before in its epoch, so that who has one digest
// has vouched for all before. A checkpoint is a record that names the last digest and signs it.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a record's JSON.
func DigestOf(body []byte) Digest { return sha256.Sum256(body) }

func (d Digest) String() string {
	var digits [2 * len(d)]byte
	hex.Encode(digits[:], d[:])
	return string(digits[:])
}

func parseDigest(s string) (d Digest, err error) {
	if len(s) != 2*len(d) {
		return d, errors.New("a digest has 64 hexadecimal digits")
	}
	_, err = hex.Decode(d[:], []byte(s))
	return d, err
}

// CheckpointID is the id of the record that proves an epoch of a source up to a sequence.
func CheckpointID(source string, epoch, sequence uint64) string {
	return KindCheckpoint + "/" + source + "/" + strconv.FormatUint(epoch, 10) + "/" + strconv.FormatUint(sequence, 10)
}

// signed is what a checkpoint's signature is of: text, so that other tools can check it as easily.
func signed(source string, c *usagev1.Checkpoint) []byte {
	return fmt.Appendf(nil, "spokegate checkpoint 1\nsource %s\nepoch %d\nsequence %d\ncount %d\ndigest %s\nclosing %t\n",
		source, c.Epoch, c.Sequence, c.Count, c.Digest, c.Closing)
}

// signCheckpoint fills in key and signature.
func signCheckpoint(source string, c *usagev1.Checkpoint, key ed25519.PrivateKey) {
	c.PublicKey = hex.EncodeToString(key.Public().(ed25519.PublicKey))
	c.Signature = hex.EncodeToString(ed25519.Sign(key, signed(source, c)))
}

// VerifyCheckpoint tells why the signature of a source's checkpoint is not one by the key that it names. That the key is the
// source's own is for the caller to know, by its fingerprint.
func VerifyCheckpoint(source string, c *usagev1.Checkpoint) error {
	key, err := hex.DecodeString(c.GetPublicKey())
	if err != nil || len(key) != ed25519.PublicKeySize {
		return errors.New("it names no Ed25519 key")
	}
	signature, err := hex.DecodeString(c.GetSignature())
	if err != nil || !ed25519.Verify(key, signed(source, c), signature) {
		return errors.New("its signature is not one of its key")
	}
	return nil
}

// Fingerprint is a short name of the key of a checkpoint, as the log of its source tells it at the start.
func Fingerprint(publicKey string) string {
	key, err := hex.DecodeString(publicKey)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(key)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// checkpointRecord makes the record of a checkpoint.
func checkpointRecord(source string, c *usagev1.Checkpoint, now *timestamppb.Timestamp) *usagev1.Record {
	return &usagev1.Record{Id: CheckpointID(source, c.Epoch, c.Sequence), Kind: KindCheckpoint, Checkpoint: c, EndedAt: now}
}
