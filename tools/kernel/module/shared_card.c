// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel driver for tests: claims QEMU's NVMe controller, which has virtual
 * functions, and shares it between guests as mediated devices by the rules of
 * NVIDIA's vGPU: a card holds devices of one type at a time, a virtual function
 * holds one. The devices do nothing; what counts is what sysfs and udev show.
 * Written for Linux 6.1.
 */
#include <linux/mdev.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/vfio.h>

#define KINDS 2

static const struct {
	const char *id;
	const char *name;
	unsigned int memory;	/* megabytes */
	unsigned int room;	/* on a card */
} kinds[KINDS] = {
	{ "468", "NVIDIA A100-4C", 4096, 10 },
	{ "471", "NVIDIA A100-20C", 20480, 2 },
};

struct function {
	struct mdev_parent parent;
	struct mdev_type types[KINDS];
	struct mdev_type *list[KINDS];
	struct pci_dev *pci;
	unsigned int held;	/* on this function */
	unsigned int on_card;	/* of a card: on all its functions */
	unsigned int kind;	/* of a card: what they are, while there are any */
	bool is_parent;
};

struct vgpu {
	struct vfio_device vfio;
};

static DEFINE_MUTEX(lock);

static struct function *card_of(struct function *function)
{
	return pci_get_drvdata(pci_physfn(function->pci));
}

static struct function *function_of(struct mdev_type *type)
{
	return container_of(type->parent, struct function, parent);
}

static unsigned int kind_of(struct mdev_type *type)
{
	return type - function_of(type)->types;
}

static unsigned int count_room(struct mdev_type *type)
{
	struct function *function = function_of(type), *card = card_of(function);
	unsigned int left;

	if (card->on_card && card->kind != kind_of(type))
		return 0;
	left = kinds[kind_of(type)].room - card->on_card;
	if (!function->pci->is_virtfn)
		return left;
	return function->held ? 0 : min(left, 1u);
}

static unsigned int shared_get_available(struct mdev_type *type)
{
	unsigned int room;

	mutex_lock(&lock);
	room = count_room(type);
	mutex_unlock(&lock);
	return room;
}

static ssize_t shared_show_description(struct mdev_type *type, char *text)
{
	return sprintf(text, "num_heads=1, frl_config=60, framebuffer=%uM, "
		       "max_resolution=4096x2160, max_instance=%u\n",
		       kinds[kind_of(type)].memory, kinds[kind_of(type)].room);
}

static void vgpu_release(struct vfio_device *vfio)
{
	vfio_free_device(vfio);
}

static const struct vfio_device_ops vgpu_ops = {
	.name = "shared_card",
	.release = vgpu_release,
};

static bool take_room(struct mdev_type *type)
{
	struct function *function = function_of(type), *card = card_of(function);
	bool has_room;

	mutex_lock(&lock);
	has_room = count_room(type);
	if (has_room) {
		function->held++;
		card->on_card++;
		card->kind = kind_of(type);
	}
	mutex_unlock(&lock);
	return has_room;
}

static void leave_room(struct mdev_type *type)
{
	struct function *function = function_of(type);

	mutex_lock(&lock);
	function->held--;
	card_of(function)->on_card--;
	mutex_unlock(&lock);
}

static int shared_probe(struct mdev_device *device)
{
	struct vgpu *vgpu;
	int error;

	if (!take_room(device->type))
		return -ENOSPC;
	vgpu = vfio_alloc_device(vgpu, vfio, &device->dev, &vgpu_ops);
	if (IS_ERR(vgpu)) {
		leave_room(device->type);
		return PTR_ERR(vgpu);
	}
	error = vfio_register_emulated_iommu_dev(&vgpu->vfio);
	if (error) {
		vfio_put_device(&vgpu->vfio);
		leave_room(device->type);
		return error;
	}
	dev_set_drvdata(&device->dev, vgpu);
	return 0;
}

static void shared_remove(struct mdev_device *device)
{
	struct vgpu *vgpu = dev_get_drvdata(&device->dev);

	vfio_unregister_group_dev(&vgpu->vfio);
	vfio_put_device(&vgpu->vfio);
	leave_room(device->type);
}

static struct mdev_driver shared_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = shared_probe,
	.remove = shared_remove,
	.get_available = shared_get_available,
	.show_description = shared_show_description,
	.driver = {
		.name = "nvidia-vgpu-vfio",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
	},
};

static int card_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct function *function;
	int error, i;

	error = pcim_enable_device(pci);
	if (error)
		return error;
	function = devm_kzalloc(&pci->dev, sizeof(*function), GFP_KERNEL);
	if (!function)
		return -ENOMEM;
	function->pci = pci;
	pci_set_drvdata(pci, function);
	/* a card with virtual functions is shared by these, another one by itself */
	if (!pci->is_virtfn && pci_sriov_get_totalvfs(pci))
		return 0;
	for (i = 0; i < KINDS; i++) {
		function->types[i].sysfs_name = kinds[i].id;
		function->types[i].pretty_name = kinds[i].name;
		function->list[i] = &function->types[i];
	}
	error = mdev_register_parent(&function->parent, &pci->dev, &shared_driver,
				     function->list, KINDS);
	function->is_parent = !error;
	return error;
}

static void card_remove(struct pci_dev *pci)
{
	struct function *function = pci_get_drvdata(pci);

	if (!pci->is_virtfn)
		pci_disable_sriov(pci);
	if (function->is_parent)
		mdev_unregister_parent(&function->parent);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0010) },
	{ }
};

static struct pci_driver card_driver = {
	.name = "nvidia",	/* the types are called by it */
	.id_table = ids,
	.probe = card_probe,
	.remove = card_remove,
	.sriov_configure = pci_sriov_configure_simple,
};

static int __init shared_init(void)
{
	int error = mdev_register_driver(&shared_driver);

	if (error)
		return error;
	error = pci_register_driver(&card_driver);
	if (error)
		mdev_unregister_driver(&shared_driver);
	return error;
}

static void __exit shared_exit(void)
{
	pci_unregister_driver(&card_driver);
	mdev_unregister_driver(&shared_driver);
}

module_init(shared_init);
module_exit(shared_exit);
MODULE_DESCRIPTION("A shared card for tests");
MODULE_LICENSE("GPL");
