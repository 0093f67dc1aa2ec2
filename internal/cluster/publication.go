// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// buildPublication builds the node document of each group and the keys of all objects that machines download.
func (session *Session) buildPublication(
	ctx context.Context,
	s store.Store,
	d *Desired,
) (node.Publication, error) {
	catalog, err := readPullableCatalog(ctx, s, d.Manifests.Cluster)
	if err != nil {
		return node.Publication{}, err
	}

	public, err := pki.LoadPublicBundle(ctx, s, session.Name)
	if err != nil {
		return node.Publication{}, err
	}

	settings, err := readStoreSettings(ctx, d.MachineStore)
	if err != nil {
		return node.Publication{}, err
	}

	cniRole, err := vpcCNIRole(ctx, session, d.Manifests.Cluster)
	if err != nil {
		return node.Publication{}, err
	}

	in := node.PublicationInput{Arch: map[string]string{}, StoreURL: d.MachineStore.URL()}
	documents := documentBuilder{
		session:     session,
		desired:     d,
		catalog:     catalog,
		trust:       nodeTrust(public),
		storeKeyARN: settings.KMSKeyARN,
		workerRoles: session.workerRolesByGroup(d),
		cniRole:     cniRole,
	}

	for _, g := range d.Manifests.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue // it runs no agent
		}

		doc, err := documents.build(g)
		if err != nil {
			return node.Publication{}, err
		}

		in.Documents = append(in.Documents, doc)
		in.Arch[g.Metadata.Name] = d.Manifests.Arch(g.Spec.MachineType)
	}

	if in.Agents, err = session.findAgents(in.Arch); err != nil {
		return node.Publication{}, err
	}

	return node.BuildPublication(in)
}

// documentBuilder builds the node documents of a cluster from what they share.
type documentBuilder struct {
	session     *Session
	desired     *Desired
	catalog     asset.Catalog
	trust       node.TrustBundle
	storeKeyARN string
	// workerRoles are the names of IAM roles by worker group.
	workerRoles map[string]string
	// cniRole is the ARN of the IAM role of the Amazon VPC CNI; empty with another pod network.
	cniRole string
}

// build returns the node document of a group.
func (b documentBuilder) build(g v1alpha1.InstanceGroup) (node.Document, error) {
	d := b.desired
	own := d.machineCluster() // as the group sees it
	own.Spec.KubernetesVersion = manifest.GroupVersion(d.Manifests.Cluster, g)
	arch := d.Manifests.Arch(g.Spec.MachineType)
	files, images, err := node.ResolveAssets(b.catalog, own.Spec, g.Spec, arch)
	if err != nil {
		return node.Document{}, explainAssets(b.session.Name, g.Metadata.Name, err)
	}

	capacity, err := podCapacity(d.Manifests, g)
	if err != nil {
		return node.Document{}, err
	}

	return node.BuildDocument(node.DocumentInput{
		Cluster:     own,
		ClusterID:   b.session.ownership.ID,
		Groups:      d.Manifests.Groups,
		Group:       g,
		Files:       files,
		Images:      images,
		Trust:       b.trust,
		StoreURL:    d.MachineStore.URL(),
		StoreKeyARN: b.storeKeyARN,
		WorkerRoles: b.workerRoles,
		VolumeTags:  model.VolumeTags(own, b.session.ownership.ID),
		VPCCNIRole:  b.cniRole,
		PodCapacity: capacity,
	})
}

// vpcCNIRole returns the ARN of the IAM role of the Amazon VPC CNI; empty if the cluster has another pod network.
func vpcCNIRole(ctx context.Context, session *Session, c v1alpha1.Cluster) (string, error) {
	if !manifest.HasVPCPods(c) {
		return "", nil
	}

	who, err := session.accountIdentity(ctx)
	if err != nil {
		return "", err
	}

	return model.VPCCNIRoleARN(who.Partition, who.Account, c), nil
}

// podCapacity returns how many pods a machine of a group can have with the Amazon VPC CNI; zero with another pod network.
func podCapacity(set manifest.Set, g v1alpha1.InstanceGroup) (int, error) {
	if !manifest.HasVPCPods(set.Cluster) {
		return 0, nil
	}

	pods, machineType := set.PodCapacity(g.Spec)
	if pods > 0 {
		return pods, nil
	}

	return 0, diag.WithHint(
		fmt.Errorf(
			"instancegroup/%s: how many network interfaces and addresses machines of type %s can have is not known",
			g.Metadata.Name,
			machineType,
		),
		"allow ec2:DescribeInstanceTypes: slipway iam operator-policy "+set.Cluster.Metadata.Name,
	)
}

// explainAssets names the group whose assets cannot be resolved, and how images get digests.
func explainAssets(cluster, group string, err error) error {
	explained := fmt.Errorf("%s: instancegroup/%s: %w", manifest.AssetsKey(cluster), group, err)
	if hint := node.MissingImageHint(err); hint != "" {
		return diag.WithHint(explained, hint)
	}

	if !errors.Is(err, asset.ErrNoDigest) {
		return explained
	}

	return diag.WithHint(explained, "look the digests of all images up: "+pinCommand(cluster))
}

// pinCommand returns the command that gives all images of a cluster digests.
func pinCommand(cluster string) string {
	return fmt.Sprintf("slipway get all %s -o yaml | slipway replace -f - --yes", cluster)
}

// ReadCatalog returns the cluster's asset catalogue with the repositories that its manifest sets. The error wraps
// [store.ErrNotFound] if the cluster has none yet.
func ReadCatalog(ctx context.Context, s store.Store, c v1alpha1.Cluster) (asset.Catalog, error) {
	catalog, err := clusterstate.ReadPinnedCatalog(ctx, s, c.Metadata.Name)
	if err != nil {
		return catalog, err
	}

	if repo := c.Spec.Assets.FileRepository; repo != "" {
		catalog.FileRepository = repo
	}

	if registry := c.Spec.Assets.ContainerRegistry; registry != "" {
		catalog.ContainerRegistry = registry
	}

	return catalog, nil
}

// readPullableCatalog returns the asset catalogue of a cluster, whose machines may pull its images.
func readPullableCatalog(ctx context.Context, s store.Store, c v1alpha1.Cluster) (asset.Catalog, error) {
	catalog, err := ReadCatalog(ctx, s, c)
	if err != nil {
		return asset.Catalog{}, err
	}

	return catalog, checkImageRegistry(catalog, c)
}

// checkImageRegistry returns an error if machines would pull from a private registry in Amazon ECR without permission: roles
// get it for the registry that the manifest names.
func checkImageRegistry(catalog asset.Catalog, c v1alpha1.Cluster) error {
	_, private := ecraddress.Parse(catalog.ContainerRegistry)
	if !private || c.Spec.Assets.ContainerRegistry != "" {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"the asset catalogue of cluster %s has its images in %s, and the roles of machines may not pull from there",
			c.Metadata.Name,
			catalog.ContainerRegistry,
		),
		"set spec.assets.containerRegistry to "+catalog.ContainerRegistry,
	)
}

// nodeTrust returns the certificates that machines trust.
func nodeTrust(p pki.PublicBundle) node.TrustBundle {
	return node.TrustBundle{
		KubernetesCA:       p.CAs[pki.KubernetesCA],
		EtcdPeerCA:         p.CAs[pki.EtcdPeerCA],
		EtcdClientCA:       p.CAs[pki.EtcdClientCA],
		FrontProxyCA:       p.CAs[pki.FrontProxyCA],
		ServiceAccountKeys: p.ServiceAccountKeys,
	}
}
