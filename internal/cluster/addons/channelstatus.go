// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// ChannelStatus is what the control plane did with one published channel.
type ChannelStatus struct {
	// Channel is the name of the channel.
	Channel string `json:"channel"`
	published.Status
}

// Channels returns the status of all published channels that the control plane has read, sorted by name.
func (s *Session) Channels(ctx context.Context) ([]ChannelStatus, error) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	resource := s.Applier.Client.Resource(configMaps, metav1.NamespaceSystem)
	object, err := resource.Get(ctx, published.StatusName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, published.StatusName, err)
	}

	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, published.StatusName, err)
	}

	all, err := published.ParseStatus(data)
	if err != nil {
		return nil, err
	}

	var out []ChannelStatus
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, ChannelStatus{Channel: name, Status: all[name]})
	}

	return out, nil
}

// ChannelsOf returns the channels that add-ons were applied from.
func ChannelsOf(all []applier.Inventory, names []string) []string {
	var out []string
	for _, i := range all {
		if slices.Contains(names, i.Name) {
			out = append(out, i.Channel)
		}
	}

	return out
}

// CheckUnpublished refuses to change add-ons of channels that the control plane corrects: it would apply the published
// version again.
func (s *Session) CheckUnpublished(ctx context.Context, channels ...string) error {
	all, err := s.Channels(ctx)
	if err != nil {
		return err
	}

	for _, c := range all {
		if c.Mode == published.Correct && slices.Contains(channels, c.Channel) {
			return diag.WithHint(
				fmt.Errorf("channel %s is published: the control plane would apply its published version again", c.Channel),
				"publish the new version: slipway addons publish; or let go of the channel first: slipway addons unpublish "+c.Channel+
					", which the control plane notices within a minute",
			)
		}
	}

	return nil
}
