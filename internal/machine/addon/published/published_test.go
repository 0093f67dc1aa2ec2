// SPDX-License-Identifier: Apache-2.0

package published_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// plainSealer binds to the context and encrypts nothing.
type plainSealer struct{}

func (plainSealer) Seal(_ context.Context, text []byte, bound map[string]string) ([]byte, error) {
	return append([]byte(bound["slipway.dev/cluster"]+"\n"), text...), nil
}

func (plainSealer) Open(_ context.Context, sealed []byte, bound map[string]string) ([]byte, error) {
	text, found := bytes.CutPrefix(sealed, []byte(bound["slipway.dev/cluster"]+"\n"))
	if !found {
		return nil, store.ErrDecryption
	}

	return text, nil
}

func newRelease(t *testing.T, name, text string) applier.Release {
	t.Helper()
	objects, err := bundle.ReadObjects([]byte(text))
	if err == nil {
		objects, err = bundle.Prepare(name, objects, nil, nil)
	}

	if err != nil {
		t.Fatal(err)
	}

	return applier.Release{
		Addon: v1alpha1.Addon{
			Name:       name,
			Version:    "1.0.0",
			Source:     v1alpha1.AddonSource{Manifest: "https://user:password@example.com/a.yaml"},
			Parameters: []v1alpha1.AddonParameter{{Name: "TOKEN", Value: "hunter2"}},
		},
		Channel: "base",
		Wave:    1,
		Objects: objects,
	}
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {a: \"1\"}\n"

func TestSealAndOpen(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	empty := published.Channels{APIVersion: v1alpha1.APIVersion, Kind: published.Kind, Cluster: "demo"}
	channels := empty.With(published.NewChannel("base", []applier.Release{newRelease(t, "a", configMap)}), now)
	sealed, err := channels.Seal(t.Context(), plainSealer{})
	if err != nil {
		t.Fatal(err)
	}

	got, err := published.Open(t.Context(), plainSealer{}, "demo", sealed)
	if err != nil {
		t.Fatal(err)
	}

	base, found := got.Find("base")
	if !found || base.Mode != published.Correct || base.Serial != 1_000_000 || !base.PublishedAt.Equal(now) {
		t.Errorf("got %+v", base)
	}

	releases := base.ApplierReleases()
	if len(releases) != 1 || releases[0].Channel != "base" || releases[0].Objects[0].GetName() != "a" {
		t.Errorf("got %+v", releases)
	}

	if releases[0].Addon.Source.Manifest != "" || releases[0].Addon.Parameters != nil {
		t.Error("the sources and parameters of add-ons are published")
	}

	if _, err := published.Open(t.Context(), plainSealer{}, "other", sealed); !errors.Is(err, store.ErrDecryption) {
		t.Errorf("another cluster: %v", err)
	}

	stolen := append([]byte("other\n"), bytes.TrimPrefix(sealed, []byte("demo\n"))...)
	if _, err := published.Open(t.Context(), plainSealer{}, "other", stolen); err == nil ||
		!strings.Contains(err.Error(), "of cluster demo, want PublishedAddonChannels of cluster other") {
		t.Errorf("channels of another cluster: %v", err)
	}
}

// TestSerialsGrow: also when the clock goes back, and when a channel is withdrawn.
func TestSerialsGrow(t *testing.T) {
	channels := published.Channels{Cluster: "demo"}.With(published.Channel{Name: "b"}, time.Unix(100, 0))
	channels = channels.With(published.Channel{Name: "a"}, time.Unix(50, 0))
	if channels.Serial != 101 || channels.Channels[0].Name != "a" || channels.Channels[1].Serial != 100 {
		t.Errorf("got %+v", channels)
	}

	channels = channels.Without("b", time.Unix(50, 0))
	if channels.Serial != 102 || len(channels.Channels) != 1 {
		t.Errorf("got %+v", channels)
	}
}

func TestTooLargeChannels(t *testing.T) {
	noise := make([]byte, 5<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}

	text := strings.Replace(configMap, "\"1\"", base64.StdEncoding.EncodeToString(noise), 1)
	channels := published.Channels{Cluster: "demo"}.With(
		published.NewChannel("base", []applier.Release{newRelease(t, "a", text)}), time.Unix(1, 0))
	if _, err := channels.Seal(t.Context(), plainSealer{}); err == nil || !strings.Contains(err.Error(), "at most 67108864 and 4194304") {
		t.Errorf("got %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	channels := published.Channels{APIVersion: v1alpha1.APIVersion, Kind: published.Kind, Cluster: "demo", Serial: 1}
	sealed, err := channels.Seal(f.Context(), plainSealer{})
	if err != nil {
		f.Fatal(err)
	}

	f.Add(bytes.TrimPrefix(sealed, []byte("demo\n")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, compressed []byte) {
		got, err := published.Open(t.Context(), plainSealer{}, "demo", append([]byte("demo\n"), compressed...))
		if err == nil && got.Cluster != "demo" {
			t.Errorf("got %+v", got)
		}
	})
}
