package usage

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// signKeyFile holds, in the folder of a source, the key that signs its checkpoints. Whoever reads it can forge them.
const signKeyFile = "checkpoint.key"

// signKey returns the source's key, and makes it at the first start. With an error it returns a key that lasts as long as
// this process: a journal is kept all the same, and the fingerprint tells.
func signKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, signKeyFile)
	b, err := os.ReadFile(path)
	if err == nil {
		var key ed25519.PrivateKey
		if key, err = parseSignKey(b); err == nil {
			return key, nil
		}
	}
	_, key, randErr := ed25519.GenerateKey(rand.Reader)
	if randErr != nil {
		return nil, randErr
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = saveSignKey(dir, path, key)
	}
	if err != nil {
		return key, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

func parseSignKey(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("no Ed25519 key")
	}
	return key, nil
}

// saveSignKey leaves the whole key or none after a crash at any moment.
func saveSignKey(dir, path string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeSynced(path+".new", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return osDisk{}.SyncDir(dir)
}
