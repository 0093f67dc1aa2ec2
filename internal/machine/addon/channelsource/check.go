// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// isName reports whether a text can be the name of an add-on, which is the value of a label.
func isName(text string) bool {
	return len(validation.IsDNS1123Subdomain(text)) == 0 && len(text) <= validation.LabelValueMaxLength
}

// checkPruneKind refuses to prune all objects of a kind.
func checkPruneKind(k v1alpha1.AddonPruneKind) error {
	if k.Kind == "" || k.Kind == "Namespace" || k.Kind == "CustomResourceDefinition" {
		return fmt.Errorf("kind %q is not pruned by labels", k.Kind)
	}

	selector, err := labels.Parse(k.LabelSelector)
	if err != nil || selector.Empty() {
		return errors.New("its labelSelector selects no objects by labels")
	}

	return nil
}
