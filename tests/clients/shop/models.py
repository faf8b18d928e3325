"""What does the shop of the Django test keep? Keys of both kinds, and a column of each kind that its users have."""

import uuid

from django.db import models


class Shop(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=80)
    opened = models.DateTimeField()
    day = models.DateField(null=True)
    rent = models.DecimalField(max_digits=10, decimal_places=2, default=0)
    data = models.JSONField(default=dict)
    is_open = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]


class Visit(models.Model):
    # Django's foreign keys, with their index and without the database's constraint, which Tarn does not have.
    shop = models.ForeignKey(Shop, on_delete=models.CASCADE, db_constraint=False, related_name="visits")
    at = models.DateTimeField(auto_now_add=True)
    seconds = models.FloatField()
    note = models.TextField(null=True, db_index=True)
    raw = models.BinaryField(default=b"")
