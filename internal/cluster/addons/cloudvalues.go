// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// addCloudValues adds the values that parameters of add-ons take from AWS. It makes no call if there are none.
func (s *Session) addCloudValues(ctx context.Context, list []v1alpha1.Addon, values map[string]string) error {
	for _, a := range list {
		for _, p := range a.Parameters {
			if _, known := values[p.From]; known || p.From == "" {
				continue
			}

			value, err := s.cloudValue(ctx, p.From)
			if err != nil {
				return fmt.Errorf("add-on %s: parameter %s: %w", a.Name, p.Name, err)
			}

			values[p.From] = value
		}
	}

	return nil
}

// cloudValue returns a value that is read from AWS; empty for one that is not known.
func (s *Session) cloudValue(ctx context.Context, from string) (string, error) {
	namespace, name, isRole := manifest.ParseAddonRole(from)

	switch {
	case isRole:
		return s.serviceAccountRole(ctx, namespace, name)
	case from == manifest.AddonVPC && s.Cluster.Spec.Networking.NetworkID != "":
		return s.Cluster.Spec.Networking.NetworkID, nil
	case from != manifest.AddonVPC:
		return "", nil
	}

	cfg, err := awsConfig(ctx, s.env, s.Cluster)
	if err != nil {
		return "", err
	}

	return discovery.FindVPC(ctx, cfg, s.Cluster.Metadata.Name)
}

// serviceAccountRole returns the ARN of the IAM role of a service account, which the manifest must have.
func (s *Session) serviceAccountRole(ctx context.Context, namespace, name string) (string, error) {
	list := s.Cluster.Spec.IAM.ServiceAccountExternalPermissions
	if s.hasKarpenter && namespace == manifest.KarpenterNamespace && name == manifest.KarpenterName {
		list = []v1alpha1.ServiceAccountPermissions{{Namespace: namespace, Name: name}}
	}

	i := slices.IndexFunc(list, func(p v1alpha1.ServiceAccountPermissions) bool {
		return p.Namespace == namespace && p.Name == name
	})
	if i < 0 {
		return "", diag.WithHint(
			fmt.Errorf("service account %s/%s has no IAM role in the manifest of the cluster", namespace, name),
			fmt.Sprintf("create it: slipway iam service-account create %s -n %s --policy-file FILE", name, namespace),
		)
	}

	cfg, err := awsConfig(ctx, s.env, s.Cluster)
	if err != nil {
		return "", err
	}

	who, err := discovery.GetCallerIdentity(ctx, cfg)
	if err != nil {
		return "", err
	}

	return model.ServiceAccountRoleARN(who.Partition, who.Account, s.Cluster, list[i]), nil
}
