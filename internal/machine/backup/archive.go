// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// defaultPartSize is the size of a part before its encryption. Writing and reading a backup needs memory for two parts.
const defaultPartSize = 8 << 20

// ErrDamaged is wrapped by errors about a backup whose objects are not those that were written.
var ErrDamaged = errors.New("the backup is damaged")

// Records signs the metadata and the verifications of backups, and reads signed ones. Agents choose a backup by them.
type Records interface {
	// Sign encodes a record for a key of the store.
	Sign(key string, record any) ([]byte, error)
	// Read decodes the output of Sign. See [node.ReadRecord] for its errors.
	Read(body []byte, key string, record any) error
}

// Archive is where the snapshots of a cluster are.
type Archive struct {
	// Store is the machine store.
	Store store.Store
	// Sealer seals the keys of backups.
	Sealer store.Sealer
	// Cluster is the name of the cluster.
	Cluster string
	// Records signs and verifies what is known of backups; nil: neither, as on the computer of an operator, who names the backup that is
	// to be restored.
	Records Records
	// PartSize is the size of a part before its encryption. Zero: 8 MiB.
	PartSize int
}

// Upload encrypts a snapshot and writes its parts. It returns the metadata of the parts alone: ID, SHA256, DBSize, Parts
// and SealedKey. The backup exists when [Archive.Commit] has written the complete metadata.
func (a Archive) Upload(ctx context.Context, id string, snapshot io.Reader) (Metadata, error) {
	out := Metadata{FormatVersion: FormatVersion, ID: id, Cluster: a.Cluster}
	key := make([]byte, 32)
	defer clear(key)
	if _, err := rand.Read(key); err != nil {
		return out, fmt.Errorf("create the key of backup %s: %w", id, err)
	}

	var err error
	if out.SealedKey, err = a.Sealer.Seal(ctx, key, Context(a.Cluster, id)); err != nil {
		return out, fmt.Errorf("seal the key of backup %s: %w", id, err)
	}

	parts, err := newPartCipher(key, id)
	if err != nil {
		return out, err
	}

	sum := sha256.New()
	in := bufio.NewReader(io.TeeReader(snapshot, sum))
	plain := make([]byte, cmp.Or(a.PartSize, defaultPartSize))
	for last := false; !last; out.Parts++ {
		n, err := io.ReadFull(in, plain)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return out, fmt.Errorf("read the snapshot for backup %s: %w", id, err)
		}

		_, peekErr := in.Peek(1)
		if peekErr != nil && !errors.Is(peekErr, io.EOF) {
			return out, fmt.Errorf("read the snapshot for backup %s: %w", id, peekErr)
		}

		last = peekErr != nil
		sealed := parts.seal(out.Parts, last, plain[:n])
		if _, err := a.Store.Put(ctx, Key(a.Cluster, id, partObject(out.Parts)), sealed); err != nil {
			return out, err
		}

		out.DBSize += int64(n)
	}

	out.SHA256 = hex.EncodeToString(sum.Sum(nil))

	return out, nil
}

// Download decrypts a snapshot and writes it to out. The error wraps ErrDamaged if the snapshot is not the one that was
// written; what was written to out must then not be used.
func (a Archive) Download(ctx context.Context, m Metadata, out io.Writer) error {
	key, err := a.Sealer.Open(ctx, m.SealedKey, Context(a.Cluster, m.ID))
	if err != nil {
		return fmt.Errorf("open the key of backup %s: %w", m.ID, err)
	}

	defer clear(key)
	parts, err := newPartCipher(key, m.ID)
	if err != nil {
		return err
	}

	sum := sha256.New()
	for n := range m.Parts {
		o, err := a.Store.Get(ctx, Key(a.Cluster, m.ID, partObject(n)))
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}

		if err != nil {
			return err
		}

		plain, err := parts.open(n, n == m.Parts-1, o.Body)
		if err != nil {
			return fmt.Errorf("decrypt part %d of %d of backup %s: %w", n+1, m.Parts, m.ID, err)
		}

		_, _ = sum.Write(plain) // a hash never fails
		if _, err := out.Write(plain); err != nil {
			return fmt.Errorf("write the snapshot of backup %s: %w", m.ID, err)
		}
	}

	if got := hex.EncodeToString(sum.Sum(nil)); got != m.SHA256 {
		return fmt.Errorf(
			"backup %s: %w: SHA-256 is %s instead of %s",
			m.ID,
			ErrDamaged,
			got,
			m.SHA256,
		)
	}

	return nil
}

// partCipher encrypts the parts of one backup. Its key is used for this backup alone, so that the number of a part can be
// its nonce. A part is bound to the backup, its number and whether it is the last one: parts cannot be left out,
// exchanged or added.
type partCipher struct {
	aead cipher.AEAD
	id   string
}

func newPartCipher(key []byte, id string) (partCipher, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return partCipher{}, fmt.Errorf("use the key of backup %s: %w", id, err)
	}

	aead, err := cipher.NewGCM(block)
	if err != nil {
		return partCipher{}, fmt.Errorf("use the key of backup %s: %w", id, err)
	}

	return partCipher{aead: aead, id: id}, nil
}

func (c partCipher) seal(n int, last bool, plain []byte) []byte {
	return c.aead.Seal(nil, c.nonce(n), plain, c.bound(n, last))
}

func (c partCipher) open(n int, last bool, sealed []byte) ([]byte, error) {
	plain, err := c.aead.Open(nil, c.nonce(n), sealed, c.bound(n, last))
	if err != nil {
		return nil, ErrDamaged
	}

	return plain, nil
}

func (c partCipher) nonce(n int) []byte {
	out := make([]byte, c.aead.NonceSize())
	binary.BigEndian.PutUint64(out[len(out)-8:], uint64(n))

	return out
}

func (c partCipher) bound(n int, last bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "slipway etcd backup %s part %d last %t", c.id, n, last)

	return b.Bytes()
}
