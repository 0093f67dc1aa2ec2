// SPDX-License-Identifier: Apache-2.0

package cloudformation

func computeTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::LaunchTemplate": {
			name: "LaunchTemplateName", max: 128,
			make: func(j *job) error {
				in := tree{
					"LaunchTemplateName": j.named(), "LaunchTemplateData": j.props["LaunchTemplateData"],
					"TagSpecifications": withTags(list0(j.props["TagSpecifications"]), j.tags, "launch-template"),
				}
				if d := j.text("VersionDescription"); d != "" {
					in["VersionDescription"] = d
				}
				out, err := j.call("ec2", "CreateLaunchTemplate", in)
				if err != nil {
					return err
				}
				return j.made(at(out, "LaunchTemplate", "LaunchTemplateId"))
			},
			settle: templateVersions,
			change: changeTemplate,
			remove: removeEC2("DeleteLaunchTemplate", "LaunchTemplateId"),
		},
		"AWS::EC2::Volume": volumeType(),
		"AWS::EC2::VolumeAttachment": {
			make: func(j *job) error {
				if err := j.do("ec2", "AttachVolume", j.take("VolumeId", "InstanceId", "Device")); err != nil {
					return err
				}
				return j.made(j.text("VolumeId") + "|" + j.text("InstanceId"))
			},
			remove: func(j *job) error { return j.do("ec2", "DetachVolume", j.take("VolumeId", "InstanceId", "Device")) },
		},
		"AWS::EC2::Instance": instanceType(),
	}
}

// volumeType is a volume of EBS.
func volumeType() resourceType {
	return resourceType{
		make: makeEC2("CreateVolume", "volume", "VolumeId", func(j *job) tree {
			return j.take("AvailabilityZone", "Encrypted", "Iops", "KmsKeyId", "MultiAttachEnabled", "Size", "SnapshotId", "Throughput", "VolumeType")
		}),
		settle: func(j *job) error {
			j.attributes["VolumeId"] = j.id
			return j.wait(func() (bool, error) {
				v, err := j.described("DescribeVolumes", "VolumeIds", "Volumes")
				state := textOf(v, "State")
				return state == "available" || state == "in-use", err
			})
		},
		change: func(j *job) error {
			if j.differs("Size", "Iops", "Throughput", "VolumeType") {
				in := j.take("Size", "Iops", "Throughput", "VolumeType")
				in["VolumeId"] = j.id
				if err := j.do("ec2", "ModifyVolume", in); err != nil {
					return err
				}
			}
			return retagEC2(j)
		},
		remove: removeEC2("DeleteVolume", "VolumeId"),
		gone: func(j *job) (bool, error) {
			v, err := j.described("DescribeVolumes", "VolumeIds", "Volumes")
			return v == nil, err
		},
		replaced: []string{"AvailabilityZone", "Encrypted", "KmsKeyId", "SnapshotId"},
	}
}

// withTags adds the stack's tags to specifications of tags.
func withTags(specs []any, tags map[string]string, kind string) []any {
	var own any
	for _, s := range specs {
		if textOf(s, "ResourceType") == kind {
			own = at(s, "Tags")
		}
	}
	list := tagList(ownTags(tags, own))
	if len(list) == 0 {
		return []any{}
	}
	return []any{tree{"ResourceType": kind, "Tags": list}}
}

func templateVersions(j *job) error {
	t, err := j.described("DescribeLaunchTemplates", "LaunchTemplateIds", "LaunchTemplates")
	if err != nil {
		return err
	}
	for _, name := range []string{"LatestVersionNumber", "DefaultVersionNumber", "LaunchTemplateId"} {
		j.attributes[name] = textOf(t, name)
	}
	return nil
}

// changeTemplate makes a new version; what refers to the latest one follows.
func changeTemplate(j *job) error {
	if j.differs("LaunchTemplateData", "VersionDescription") {
		in := tree{"LaunchTemplateId": j.id, "LaunchTemplateData": j.props["LaunchTemplateData"]}
		if d := j.text("VersionDescription"); d != "" {
			in["VersionDescription"] = d
		}
		if err := j.do("ec2", "CreateLaunchTemplateVersion", in); err != nil {
			return err
		}
	}
	before, after := withTags(list0(j.old["TagSpecifications"]), j.oldTags, "launch-template"), withTags(list0(j.props["TagSpecifications"]), j.tags, "launch-template")
	own := *j
	own.tags, own.oldTags = nil, nil
	own.props, own.old = tree{"Tags": at(after, 0, "Tags")}, tree{"Tags": at(before, 0, "Tags")}
	if err := own.retagID(j.id); err != nil {
		return err
	}
	return templateVersions(j)
}

// instanceType is a single machine.
func instanceType() resourceType {
	state := func(j *job) (any, error) {
		out, err := j.call("ec2", "DescribeInstances", tree{"InstanceIds": []any{j.id}})
		return at(out, "Reservations", 0, "Instances", 0), err
	}
	return resourceType{
		make: func(j *job) error {
			in := j.take(
				"BlockDeviceMappings", "EbsOptimized", "ImageId", "InstanceType", "KeyName", "SecurityGroupIds", "SubnetId", "UserData",
				"PrivateIpAddress", "DisableApiTermination", "MetadataOptions",
			)
			in["MinCount"], in["MaxCount"], in["TagSpecifications"] = 1, 1, j.specs("instance")
			if p := j.text("IamInstanceProfile"); p != "" {
				in["IamInstanceProfile"] = tree{"Name": p}
			}
			if t, ok := j.props["LaunchTemplate"]; ok {
				in["LaunchTemplate"] = t
			}
			out, err := j.call("ec2", "RunInstances", in)
			if err != nil {
				return err
			}
			return j.made(at(out, "Instances", 0, "InstanceId"))
		},
		settle: func(j *job) error {
			return j.wait(func() (bool, error) {
				i, err := state(j)
				for attribute, member := range map[string]string{
					"PrivateIp": "PrivateIpAddress", "PublicIp": "PublicIpAddress", "PrivateDnsName": "PrivateDnsName", "PublicDnsName": "PublicDnsName",
				} {
					j.attributes[attribute] = textOf(i, member)
				}
				j.attributes["InstanceId"], j.attributes["VpcId"], j.attributes["AvailabilityZone"] = j.id, at(i, "VpcId"), at(i, "Placement", "AvailabilityZone")
				return textOf(i, "State", "Name") == "running", err
			})
		},
		change: retagEC2,
		remove: func(j *job) error { return j.do("ec2", "TerminateInstances", tree{"InstanceIds": []any{j.id}}) },
		gone: func(j *job) (bool, error) {
			i, err := state(j)
			name := textOf(i, "State", "Name")
			return name == "" || name == "terminated", err
		},
		attributes: []string{"AvailabilityZone"},
		replaced:   []string{"InstanceType", "IamInstanceProfile", "SecurityGroupIds", "UserData", "EbsOptimized", "MetadataOptions", "DisableApiTermination"},
	}
}
