// SPDX-License-Identifier: Apache-2.0

// Package published stores the channels of add-ons that the control plane of a cluster keeps applied. An operator publishes
// a channel: its objects, as package bundle prepares them, are sealed and written to the machine store as one object. The
// elected machine of the control plane reads it and makes the cluster have these add-ons.
//
// The package reads no sources and makes no requests to Kubernetes.
package published

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Kind is the kind of Channels; its apiVersion is v1alpha1.APIVersion.
const Kind = "PublishedAddonChannels"

// The limits of what is published. Machines read at most 8 MiB of an object that changes, and a sealed object has 4/3 of
// its size.
const (
	maxCompressedBytes = 4 << 20
	maxBytes           = 64 << 20
)

// Mode is what the control plane does with differences between a channel and the cluster.
type Mode string

// The modes.
const (
	// Correct applies the channel again whenever the cluster differs from it.
	Correct Mode = "Correct"
	// Report changes nothing, and reports what differs.
	Report Mode = "Report"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Correct, Report} }

// ParseMode returns a mode by its name, in any case.
func ParseMode(name string) (Mode, error) {
	for _, m := range Modes() {
		if strings.EqualFold(string(m), name) {
			return m, nil
		}
	}

	return "", fmt.Errorf("the mode %q is not valid: use %s or %s", name, Correct, Report)
}

// Channels are the published channels of a cluster.
type Channels struct {
	// APIVersion is v1alpha1.APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is the constant of the same name.
	Kind string `json:"kind"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Serial grows with each change. The control plane does not return to a lower one.
	Serial int64 `json:"serial"`
	// Channels by name, sorted.
	Channels []Channel `json:"channels"`
}

// Channel is one published channel.
type Channel struct {
	// Name of the channel.
	Name string `json:"name"`
	// Serial of the change that published it last.
	Serial int64 `json:"serial"`
	// PublishedAt is the time of that change.
	PublishedAt time.Time `json:"publishedAt"`
	// Mode is what is done with differences.
	Mode Mode `json:"mode"`
	// Prune deletes add-ons that were applied from the channel and that it no longer has.
	Prune bool `json:"prune,omitempty"`
	// Unfit are add-ons of which no version is for the cluster's version of Kubernetes. They are not pruned.
	Unfit []string `json:"unfit,omitempty"`
	// Releases in the order in which they are applied.
	Releases []Release `json:"releases"`
	// Source is where the control plane reads the releases from. Nil: they are published here.
	Source *Source `json:"source,omitempty"`
}

// Release is one version of an add-on.
type Release struct {
	// Addon is the entry of the channel, without its source and parameters.
	Addon v1alpha1.Addon `json:"addon"`
	// Wave is the number of the wave that the add-on is in, from 1.
	Wave int `json:"wave"`
	// Objects as package bundle prepares them.
	Objects []*unstructured.Unstructured `json:"objects"`
}

// NewChannel returns a channel as it is published. The serial is set by [Channels.With].
func NewChannel(name string, releases []applier.Release) Channel {
	out := Channel{Name: name, Mode: Correct}
	for _, r := range releases {
		entry := r.Addon
		entry.Source = v1alpha1.AddonSource{}
		entry.Parameters = nil
		out.Releases = append(out.Releases, Release{Addon: entry, Wave: r.Wave, Objects: r.Objects})
	}

	return out
}

// ApplierReleases returns the add-ons as package applier applies them.
func (c Channel) ApplierReleases() []applier.Release {
	out := make([]applier.Release, 0, len(c.Releases))
	for _, r := range c.Releases {
		out = append(out, applier.Release{
			Addon:   r.Addon,
			Channel: c.Name,
			Wave:    r.Wave,
			Objects: r.Objects,
		})
	}

	return out
}

// Find returns the channel with a name, and whether there is one.
func (c Channels) Find(name string) (Channel, bool) {
	at := slices.IndexFunc(c.Channels, func(one Channel) bool { return one.Name == name })
	if at < 0 {
		return Channel{}, false
	}

	return c.Channels[at], true
}

// With returns the channels with one added, or replaced if it has the name of another one.
func (c Channels) With(added Channel, now time.Time) Channels {
	out := c.Without(added.Name, now)
	added.Serial = out.Serial
	added.PublishedAt = now.UTC().Truncate(time.Second)
	out.Channels = append(out.Channels, added)
	slices.SortFunc(out.Channels, func(a, b Channel) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// Without returns the channels without the one with a name, under the next serial. The first serial is a time in seconds:
// it is greater than any serial of channels that were lost.
func (c Channels) Without(name string, now time.Time) Channels {
	out := c
	out.Serial = max(c.Serial+1, now.Unix())
	out.Channels = slices.DeleteFunc(slices.Clone(c.Channels), func(one Channel) bool { return one.Name == name })

	return out
}

// Key returns the key of the object in the machine store. Only the control plane may read it: channels can have Secrets.
func Key(cluster string) string { return node.SecretKey(cluster, "addon-channels") }

// Read returns the published channels of a cluster, and the object that they are in. Without one the channels are empty
// and the object has no ETag.
func Read(ctx context.Context, s store.Store, sealer store.Sealer, cluster string) (Channels, store.Object, error) {
	object, err := s.Get(ctx, Key(cluster))
	if errors.Is(err, store.ErrNotFound) {
		return newChannels(cluster), store.Object{Key: Key(cluster)}, nil
	}

	if err != nil {
		return Channels{}, store.Object{}, err
	}

	out, err := Open(ctx, sealer, cluster, object.Body)

	return out, object, err
}

func newChannels(cluster string) Channels {
	return Channels{APIVersion: v1alpha1.APIVersion, Kind: Kind, Cluster: cluster}
}

// Seal returns the channels as they are stored.
func (c Channels) Seal(ctx context.Context, sealer store.Sealer) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the channels of cluster %s: %w", c.Cluster, err)
	}

	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("compress the channels of cluster %s: %w", c.Cluster, err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the channels of cluster %s: %w", c.Cluster, err)
	}

	if len(body) > maxBytes || compressed.Len() > maxCompressedBytes {
		return nil, fmt.Errorf("the published channels of cluster %s have %d bytes, %d compressed: at most %d and %d are possible",
			c.Cluster, len(body), compressed.Len(), maxBytes, maxCompressedBytes)
	}

	return sealer.Seal(ctx, compressed.Bytes(), pki.MachineKeyContext(c.Cluster))
}

// Open decrypts and decodes what Seal returned. It fails for channels of another cluster.
func Open(ctx context.Context, sealer store.Sealer, cluster string, sealed []byte) (Channels, error) {
	compressed, err := sealer.Open(ctx, sealed, pki.MachineKeyContext(cluster))
	if err != nil {
		return Channels{}, fmt.Errorf("decrypt %s: %w", Key(cluster), err)
	}

	return decode(cluster, compressed)
}

func decode(cluster string, compressed []byte) (Channels, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return Channels{}, fmt.Errorf("decompress %s: %w", Key(cluster), err)
	}

	body, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return Channels{}, fmt.Errorf("decompress %s: %w", Key(cluster), err)
	}

	if len(body) > maxBytes {
		return Channels{}, fmt.Errorf("%s has more than %d bytes when decompressed", Key(cluster), maxBytes)
	}

	var out Channels
	if err := json.Unmarshal(body, &out); err != nil {
		return Channels{}, fmt.Errorf("parse %s: %w", Key(cluster), err)
	}

	if out.APIVersion != v1alpha1.APIVersion || out.Kind != Kind || out.Cluster != cluster {
		return Channels{}, fmt.Errorf("%s is %s %s of cluster %s, want %s of cluster %s",
			Key(cluster), out.APIVersion, out.Kind, out.Cluster, Kind, cluster)
	}

	return out, nil
}
