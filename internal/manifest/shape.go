// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// clusterShape returns a Cluster with every field set, as a JSON tree. Strict decoding compares
// documents with it. A test checks that no field is missing here.
func clusterShape() any {
	anyKey := map[string]string{"*": "x"}
	return toJSONTree(v1alpha1.Cluster{
		APIVersion: "x",
		Kind:       "x",
		Metadata:   v1alpha1.Metadata{Name: "x", Labels: anyKey},
		Spec: v1alpha1.ClusterSpec{
			KubernetesVersion: "x",
			CloudProvider: v1alpha1.CloudProvider{
				AWS: v1alpha1.AWSProvider{
					Region:           "x",
					KMSKeyARN:        "x",
					InstanceProfiles: v1alpha1.Existing{ControlPlane: "x", Worker: "x"},
					SecurityGroups:   v1alpha1.Existing{ControlPlane: "x", Worker: "x"},
				},
				NodeController: "x",
			},
			Networking: networkingShape(),
			API: v1alpha1.APIAccess{
				Access:         []string{"x"},
				LoadBalancer:   v1alpha1.LoadBalancer{Type: "x"},
				AdditionalSANs: []string{"x"},
				PublicName:     "x",
				Users:          []v1alpha1.APIUser{{ARN: "x", Groups: []string{"x"}}},
			},
			Etcd:                          etcdShape(),
			KubeAPIServer:                 apiServerShape(),
			KubeControllerManager:         controllerManagerShape(),
			ServiceAccountIssuerDiscovery: v1alpha1.ServiceAccountIssuerDiscovery{DiscoveryStore: "x"},
			IAM: v1alpha1.ClusterIAM{
				ServiceAccountExternalPermissions: []v1alpha1.ServiceAccountPermissions{{
					Name:      "x",
					Namespace: "x",
					AWS:       v1alpha1.ServiceAccountAWS{PolicyARNs: []string{"x"}, InlinePolicy: "x"},
				}},
			},
			Assets:      v1alpha1.Assets{FileRepository: "x", ContainerRegistry: "x"},
			ConfigStore: v1alpha1.ConfigStore{Base: "x"},
			SSHAccess:   []string{"x"},
			SSHKeyName:  "x",
			SSHKey:      "x",
			Topology: v1alpha1.Topology{
				DNS:     v1alpha1.DNSTopology{Type: "x"},
				Bastion: v1alpha1.BastionTopology{LoadBalancer: v1alpha1.BastionLoadBalancer{Type: "x"}},
			},
			DNSZone:       "x",
			RollingUpdate: rollingUpdateShape(),
			Upgrade: v1alpha1.Upgrade{
				AutomaticPatches:  true,
				MaintenanceWindow: v1alpha1.MaintenanceWindow{Days: []string{"x"}, Start: "x", Duration: "x"},
			},
			MachineAccess: v1alpha1.MachineAccess{
				SessionManager:               true,
				InstanceConnectSecurityGroup: "x",
			},
			DeletionProtection: true,
			Tags:               anyKey,
		},
	})
}

func etcdShape() v1alpha1.Etcd {
	return v1alpha1.Etcd{
		Volume:              volumeShape(),
		HeartbeatIntervalMS: 1,
		ElectionTimeoutMS:   1,
		Backup:              backupShape(),
		QuorumLoss:          v1alpha1.EtcdQuorumLoss{Recovery: "x", After: "x"},
		Discovery:           "x",
		DiscoveryEvents:     []string{"x"},

		RecreateVolumesAfter: "x",
	}
}

func backupShape() v1alpha1.EtcdBackup {
	return v1alpha1.EtcdBackup{
		Disabled:    true,
		Interval:    "x",
		KeepAll:     "x",
		KeepDaily:   1,
		VerifyEvery: 1,
	}
}

func networkingShape() v1alpha1.Networking {
	return v1alpha1.Networking{
		NetworkCIDR:           "x",
		PodCIDR:               "x",
		ServiceClusterIPRange: "x",
		CNI:                   "x",
		Flannel:               v1alpha1.Flannel{Backend: "x"},
		NATGateways:           "x",
		DNSDomain:             "x",
		Hostnames:             "x",
		VPCPeerings: []v1alpha1.VPCPeering{{
			Name:        "x",
			NetworkID:   "x",
			CIDRs:       []string{"x"},
			RouteTables: []string{"x"},
		}},
		NetworkID:         "x",
		InternetGatewayID: "x",
		VPCEndpoints:      []string{"x"},
		Subnets: []v1alpha1.Subnet{{
			Name:   "x",
			Zone:   "x",
			Type:   "x",
			CIDR:   "x",
			ID:     "x",
			Egress: "x",
		}},
	}
}

// groupShape returns an InstanceGroup with every field set, as a JSON tree, for the same purpose as
// clusterShape.
func groupShape() any {
	anyKey := map[string]string{"*": "x"}
	return toJSONTree(v1alpha1.InstanceGroup{
		APIVersion: "x",
		Kind:       "x",
		Metadata:   v1alpha1.Metadata{Name: "x", Labels: anyKey},
		Spec: v1alpha1.InstanceGroupSpec{
			Role:              "x",
			MachineType:       "x",
			Image:             "x",
			KubernetesVersion: "x",
			UserDataFormat:    "x",
			MinSize:           new(1),
			MaxSize:           new(1),
			Manager:           "x",
			Autoscale:         true,
			Subnets:           []string{"x"},
			RootVolume: v1alpha1.RootVolume{
				Type:          "x",
				Size:          1,
				IOPS:          1,
				Throughput:    1,
				EncryptionKey: "x",
			},
			MixedInstancesPolicy: v1alpha1.MixedInstancesPolicy{
				Instances:                  []string{"x"},
				OnDemandBase:               1,
				OnDemandAboveBase:          1,
				OnDemandAllocationStrategy: "x",
				SpotAllocationStrategy:     "x",
			},
			MaxPrice:          "x",
			CapacityRebalance: true,
			Repair: v1alpha1.Repair{
				Disabled:            true,
				NotReadyFor:         "x",
				MaxUnhealthyPercent: 1,
				MinMachineAge:       "x",
			},
			WarmPool: v1alpha1.WarmPool{
				MinSize:                  1,
				MaxGroupPreparedCapacity: 1,
				PoolState:                "x",
				ReuseOnScaleIn:           true,
			},
			NodeLabels:               anyKey,
			Taints:                   []string{"x"},
			CloudLabels:              anyKey,
			AdditionalSecurityGroups: []string{"x"},
			IAM:                      v1alpha1.GroupIAM{Policies: []string{"x"}, InlinePolicy: "x"},
			Kubelet:                  kubeletShape(),
			Sysctls:                  anyKey,
			RollingUpdate:            rollingUpdateShape(),
			AdditionalUserData:       []v1alpha1.UserData{{Name: "x", Type: "x", Content: "x"}},
			InstanceMetadata:         v1alpha1.InstanceMetadata{HTTPPutResponseHopLimit: 1, AllowedCgroups: []string{"x"}},
		},
	})
}

// numberOrPercent is the example of a field that is a number or a percentage.
const numberOrPercent = "1 or 10%"

func rollingUpdateShape() v1alpha1.RollingUpdate {
	return v1alpha1.RollingUpdate{
		MaxUnavailable:    numberOrPercent,
		MaxSurge:          numberOrPercent,
		Canary:            numberOrPercent,
		DrainTimeout:      "x",
		PauseBetween:      "x",
		MaxFailures:       1,
		AutomaticRollback: true,
		Gates: []v1alpha1.Gate{{
			Name:       "x",
			Deployment: "x",
			URL:        "x",
			Command:    []string{"x"},
			Timeout:    "x",
		}},
	}
}

func volumeShape() v1alpha1.Volume {
	return v1alpha1.Volume{
		Type:       "x",
		Size:       1,
		IOPS:       1,
		Throughput: 1,
	}
}

// toJSONTree converts a document into the generic values of encoding/json.
func toJSONTree(doc any) any {
	var tree any
	b, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(b, &tree)
	}

	if err != nil {
		panic("encode a document as JSON: " + err.Error())
	}

	return tree
}

func apiServerShape() v1alpha1.KubeAPIServer {
	return v1alpha1.KubeAPIServer{
		MaxRequestsInflight:                 1,
		MaxMutatingRequestsInflight:         1,
		EventTTL:                            "x",
		DefaultNotReadyTolerationSeconds:    1,
		DefaultUnreachableTolerationSeconds: 1,
		AuditLogMaxAge:                      1,
		AuditLogMaxBackup:                   1,
		AuditLogMaxSize:                     1,
		AuditLogUpload:                      true,
		ServiceAccountIssuer:                "x",
		AcceptedServiceAccountIssuers:       []string{"x"},
	}
}

func controllerManagerShape() v1alpha1.KubeControllerManager {
	return v1alpha1.KubeControllerManager{
		TerminatedPodGCThreshold:          1,
		NodeMonitorGracePeriod:            "x",
		HorizontalPodAutoscalerSyncPeriod: "x",
		ServiceAccountTokenSecrets:        "x",
	}
}

func kubeletShape() v1alpha1.Kubelet {
	anyKey := map[string]string{"*": "x"}

	return v1alpha1.Kubelet{
		KubeReserved:   anyKey,
		SystemReserved: anyKey,
		EvictionHard:   anyKey,

		EvictionSoft:            anyKey,
		EvictionSoftGracePeriod: anyKey,

		MaxPods:                     1,
		PodPidsLimit:                1,
		ImageGCHighThresholdPercent: 1,
		ImageGCLowThresholdPercent:  1,
		ContainerLogMaxSize:         "x",
		ContainerLogMaxFiles:        1,
		MaxParallelImagePulls:       1,
		AllowedUnsafeSysctls:        []string{"x"},
	}
}
