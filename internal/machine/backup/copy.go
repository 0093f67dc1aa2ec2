// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Origin names the backup of another cluster that a backup is a copy of.
type Origin struct {
	// Cluster is the name of the other cluster, and ClusterID its random id.
	Cluster   string `json:"cluster"`
	ClusterID string `json:"clusterID,omitempty"`
	// ID of its backup.
	ID string `json:"id"`
}

// Copy copies a backup of another cluster into this archive. The snapshot is decrypted and encrypted again, with a new key that
// is sealed to this cluster, in memory for two parts. The copy has an id of now: an unfinished one is deleted as
// such by its age. It exists when Copy has returned its metadata.
func (a Archive) Copy(ctx context.Context, from Archive, m Metadata, id string) (Metadata, error) {
	reader, writer := io.Pipe()
	transfer, transferCtx := errgroup.WithContext(ctx)
	var written Metadata
	transfer.Go(func() error {
		err := from.Download(transferCtx, m, writer)
		_ = writer.CloseWithError(err) // nil is the end of the file

		return err
	})
	transfer.Go(func() error {
		var err error
		written, err = a.Upload(transferCtx, id, reader)
		_ = reader.CloseWithError(err)

		return err
	})

	if err := transfer.Wait(); err != nil {
		return written, fmt.Errorf("copy backup %s of cluster %s: %w", m.ID, from.Cluster, err)
	}

	if written.SHA256 != m.SHA256 || written.DBSize != m.DBSize {
		return written, fmt.Errorf("copy backup %s of cluster %s: %w: the copy has other contents", m.ID, from.Cluster, ErrDamaged)
	}

	out := m
	out.FormatVersion = written.FormatVersion
	out.ID = written.ID
	out.Cluster = written.Cluster
	out.Parts = written.Parts
	out.SealedKey = written.SealedKey
	out.Reason = ReasonCopy
	out.RequestID = ""
	out.Generation = 0 // of the other cluster
	out.RaftTerm = 0
	out.Origin = &Origin{Cluster: from.Cluster, ClusterID: m.ClusterID, ID: m.ID}

	return out, a.Commit(ctx, out)
}

// FindCopy returns the backup that is a copy of one of another cluster, and whether there is one.
func (l Listing) FindCopy(from Origin) (Backup, bool) {
	i := slices.IndexFunc(l.Backups, func(b Backup) bool { return b.Origin != nil && *b.Origin == from })
	if i < 0 {
		return Backup{}, false
	}

	return l.Backups[i], true
}

// isFreshCopy reports whether a backup was copied from another cluster a short time ago, to be restored.
func (b Backup) isFreshCopy(f Facts) bool {
	copiedAt, valid := timeOf(b.ID)

	return valid && b.Reason == ReasonCopy && f.Now.Sub(copiedAt) < max(f.Policy.KeepAll, leastCopyAge)
}

// leastCopyAge is how long a copy is kept at least: it is restored at once.
const leastCopyAge = 24 * time.Hour
