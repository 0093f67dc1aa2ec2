// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const (
	// ownershipVersion is the version of the format of [Ownership].
	ownershipVersion = 1
	// clusterIDLength is the number of characters of an id: 80 bits.
	clusterIDLength = 16
)

// Ownership is the record of which cluster a name in a state store means. See docs/design/0010.
type Ownership struct {
	// Version is the version of the format.
	Version int `json:"version"`
	// ID is the cluster's random id, which is a tag of all its resources in AWS.
	ID string `json:"id"`
	// Token is the random token that this store writes to AWS when it changes the cluster. AWS has another
	// one if another copy of the store has changed the cluster since. Empty before the first apply.
	Token string `json:"token,omitempty"`
	// FormerToken is the token that AWS had before. AWS still has it if the program was killed in between.
	FormerToken string `json:"formerToken,omitempty"`
}

// OwnershipKey returns the key of the record of a cluster's id.
func OwnershipKey(cluster string) string { return cluster + "/ownership.json" }

// OwnsTags reports whether a resource with the cluster's name and these tags does not belong to another
// cluster of that name. What an older version of Slipway created has no id.
func (o Ownership) OwnsTags(tags map[string]string) bool {
	id := tags[awskind.TagClusterID]
	return id == "" || id == o.ID
}

// NewClusterID returns a random id.
func NewClusterID() string { return strings.ToLower(rand.Text())[:clusterIDLength] }

// IsClusterID reports whether id has the form of a cluster's id.
func IsClusterID(id string) bool { return regexp.MustCompile(`^[a-z2-7]{16}$`).MatchString(id) }

// NewOwnershipToken returns a random token.
func NewOwnershipToken() string { return strings.ToLower(rand.Text()) }

// ReadOwnership returns the record of a cluster's id. A cluster that an older version of Slipway created has
// none: its id is computed from its certificate authorities, which no other cluster has, and the returned
// object is zero. The id is empty if the store does not have the cluster.
func ReadOwnership(ctx context.Context, s store.Store, cluster string) (Ownership, store.Object, error) {
	o, err := s.Get(ctx, OwnershipKey(cluster))
	if errors.Is(err, store.ErrNotFound) {
		id, err := deriveClusterID(ctx, s, cluster)
		return Ownership{Version: ownershipVersion, ID: id}, store.Object{}, err
	}

	if err != nil {
		return Ownership{}, o, err
	}

	var record Ownership
	err = json.Unmarshal(o.Body, &record)
	switch {
	case err == nil && record.Version > ownershipVersion:
		return record, o, diag.WithHint(
			fmt.Errorf("%s in %s has the unknown format version %d", o.Key, s.URL(), record.Version),
			"upgrade slipway",
		)
	case err != nil || !IsClusterID(record.ID):
		return record, o, diag.WithHint(
			fmt.Errorf("%s in %s is not a valid record of a cluster's id", o.Key, s.URL()),
			"restore it from a backup; the id is the tag slipway.dev/id of the cluster's resources",
		)
	}

	return record, o, nil
}

// deriveClusterID returns the id of a cluster without a record; empty if the store does not have the cluster.
func deriveClusterID(ctx context.Context, s store.Store, cluster string) (string, error) {
	certs, err := s.Get(ctx, pki.CertsObjectKey(cluster))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	sum := sha256.Sum256(certs.Body)
	id := base32.StdEncoding.EncodeToString(sum[:])

	return strings.ToLower(id)[:clusterIDLength], err
}

// WriteOwnership replaces the version was of the record; a zero was creates it.
func WriteOwnership(
	ctx context.Context,
	s store.Store,
	cluster string,
	record Ownership,
	was store.Object,
) (store.Object, error) {
	record.Version = ownershipVersion
	body, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return store.Object{}, fmt.Errorf("encode the record of the id of cluster %s: %w", cluster, err)
	}

	return ReplaceObject(ctx, s, store.Object{Key: OwnershipKey(cluster), Body: append(body, '\n')}, was)
}

// EnsureOwnership gives a cluster that is being created its id. A create that was interrupted has given it
// one already. It returns the record as it is stored.
func EnsureOwnership(ctx context.Context, s store.Store, cluster string) (store.Object, error) {
	record, was, err := ReadOwnership(ctx, s, cluster)
	if err != nil || was.ETag != "" {
		return was, err
	}

	record.ID = NewClusterID()

	return WriteOwnership(ctx, s, cluster, record, was)
}
