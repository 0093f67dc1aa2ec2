// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"context"
	"maps"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// AddonPrefix returns the prefix of the keys of the documents of a cluster's add-ons: what channels name with state://, and
// registry secrets.
func AddonPrefix(cluster string) string { return cluster + "/addons/" }

func isAddonKey(cluster, key string) bool { return strings.HasPrefix(key, AddonPrefix(cluster)) }

// HashAllDocuments returns what [HashDocuments] returns, and the SHA-256 of each document of the cluster's add-ons. No plan
// is computed from these: it need not read them, and they can be secrets. s is not a view, which would copy them.
func HashAllDocuments(ctx context.Context, s store.Store, name string) (map[string]string, error) {
	out, err := HashDocuments(ctx, s, name)
	if err != nil {
		return nil, err
	}

	addons, err := HashAddons(ctx, s, name)
	maps.Copy(out, addons)

	return out, err
}

// HashAddons returns the SHA-256 of each document of a cluster's add-ons, in hexadecimal by key.
func HashAddons(ctx context.Context, s store.Store, name string) (map[string]string, error) {
	keys, err := s.List(ctx, AddonPrefix(name))
	if err != nil {
		return nil, err
	}

	return hashObjects(ctx, s, keys)
}

// VerifyObject checks one document that was read against the signature of a cluster. What it returns is zero if the cluster
// has no signature. The error wraps [ErrTampered]. Whose signature it is, the caller checks.
func VerifyObject(ctx context.Context, s store.Store, cluster string, o store.Object) (Signed, error) {
	found := map[string]string{o.Key: hashOf(o.Body)}

	return verifyFound(ctx, s, cluster, found, func(string) bool { return false })
}

// addons returns what is signed about the documents of add-ons that were not found.
func (st statement) addons(found map[string]string) map[string][]string {
	out := map[string][]string{}
	for key, sums := range st.Documents {
		if isAddonKey(st.Cluster, key) && found[key] == "" {
			out[key] = sums
		}
	}

	return out
}
